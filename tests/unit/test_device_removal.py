"""Removal by `adt clean`, decided over made-up contents of a device."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from adt.device.deploy.workspace import Contents, StoredDeployment, choose, parse_contents

FILES = [f"{n:064x}" for n in range(6)]


def record(name: str, number: int, *contents: int) -> StoredDeployment:
    digest = f"{number:024x}"
    return StoredDeployment(f"{name}.{digest}.json", name, digest, frozenset(FILES[n] for n in contents))


NEW, OLD, OTHER = record("toy", 1, 0, 1), record("toy", 2, 0, 2), record("other", 3, 3)
FOUND = Contents(
    records=(NEW, OLD, OTHER),
    directories=frozenset(r.digest for r in (NEW, OLD, OTHER)),
    store=dict.fromkeys(FILES, 10),
    used=frozenset(),
    deploying=0,
    dead=(),
)


def test_the_newest_of_each_name_stay() -> None:
    removal = choose(FOUND, 1)
    assert removal.records == (OLD,)
    assert removal.directories == (OLD.digest,)
    assert removal.store == (FILES[2], FILES[4], FILES[5]), "file 0 is in the newer one, too"
    assert removal.size == 30


def test_what_is_in_use_stays_and_is_named() -> None:
    removal = choose(replace(FOUND, used=frozenset({OLD.digest})), 0)
    assert removal.spared == (OLD,)
    assert OLD not in removal.records and OLD.digest not in removal.directories
    assert not set(removal.store) & OLD.contents


def test_while_something_is_deployed_the_store_is_left_alone() -> None:
    assert choose(replace(FOUND, deploying=1), 0).store == ()


def test_the_directory_that_a_deploy_is_making_stays() -> None:
    making = f"{9:024x}"
    state = replace(FOUND, directories=FOUND.directories | {making}, used=frozenset({making}), deploying=1)
    assert making not in choose(state, 0).directories


def test_what_is_no_deployment_goes() -> None:
    lost = record("toy", 7, 4)  # its directory is gone
    damaged = StoredDeployment("x.json", "", "", frozenset())
    orphan = f"{8:024x}"
    state = replace(FOUND, records=(lost, damaged, NEW), directories=frozenset({NEW.digest, orphan}))
    removal = choose(state, 5)
    assert removal.records == (lost, damaged)
    assert removal.directories == (orphan,)
    assert FILES[4] in removal.store


@given(
    keep=st.integers(0, 3),
    rows=st.lists(st.tuples(st.sampled_from("ab"), st.frozensets(st.integers(0, 5))), max_size=8),
    used=st.frozensets(st.integers(0, 8)),
)
def test_nothing_that_a_deployment_needs_ever_goes(
    keep: int, rows: list[tuple[str, frozenset[int]]], used: frozenset[int]
) -> None:
    records = tuple(record(name, number, *files) for number, (name, files) in enumerate(rows))
    digests = frozenset(r.digest for r in records)
    state = replace(
        FOUND, records=records, directories=digests, used=frozenset(f"{number:024x}" for number in used)
    )
    removal = choose(state, keep)
    stay = [r for r in records if r not in removal.records]
    assert not {r.digest for r in stay} & set(removal.directories)
    assert not frozenset().union(*(r.contents for r in stay)) & set(removal.store)
    assert not set(removal.directories) & state.used
    for name in "ab":
        mine = [r for r in records if r.name == name]
        assert [r for r in mine if r in stay][:keep] == mine[:keep] or state.used & digests


def test_what_the_device_lists_is_read() -> None:
    manifest = json.dumps(
        {
            "schema": "adt.deployment",
            "name": "toy",
            "digest": NEW.digest,
            "files": {"bin/x": {"sha256": FILES[0]}, "lib/y": {"sha256": FILES[1]}},
        },
        indent=1,
    )
    text = (
        f"==spaces==\nalive tmp/12-adtff.{OLD.digest}\nalive runs/13-adt00\ndead runs/14-adt11.{NEW.digest}\n"
        f"==used==\n{OTHER.digest}\n\n/data/local/tmp/adt/me/deployments/{f'{9:024x}'}/bin/tvm_rpc\n"
        f"==manifests==\nfile 1795244995 {NEW.file}\n{manifest}\n\n==end==\n"
        "file 1795244996 broken.json\n{\n\n==end==\n"
        f"directory {NEW.digest} \ndirectory stranger\n==store==\ntotal 4\n"
        f"-r-xr-xr-x 1 0 0 77 2026-11-21 07:30 {FILES[0]}\r\n-rw-r--r-- 1 0 0 5 2026-11-21 07:30 stranger\n"
    )
    state = parse_contents(text)
    assert state.records == (StoredDeployment("broken.json", "", "", frozenset()), NEW), "the newer one first"
    assert state.directories == {NEW.digest}
    for turn in ("x", "1" * 5000, "7"):
        numbered = parse_contents(
            text.replace(f"directory {NEW.digest} \n", f"directory {NEW.digest} {turn}\n")
        )
        assert numbered.directories == {NEW.digest}, "whatever is in the file"
    assert numbered.records[0] == NEW, "what was numbered was used later, whatever the times say"
    assert state.store == {FILES[0]: 77}
    assert state.used == {OLD.digest, OTHER.digest, f"{9:024x}"}
    assert (state.deploying, state.dead) == (1, (f"runs/14-adt11.{NEW.digest}",))
