"""Facts of a GPU for schedules: the table for Adreno, and the report of a device."""

import pytest

from adt.bundle.platforms import platform_named
from adt.compiler.compilation import package_target
from adt.compiler.targets import gpu as table
from adt.compiler.targets import model_target
from adt.compiler.targets.gpu import ANY_ADRENO, gpu_of
from adt.options.resolve import load_settings
from adt.package.manifest import PackageLike

H200 = {"max_num_threads": 1024, "max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}


@pytest.mark.parametrize(
    ("name", "row", "items"),
    [
        ("Adreno512", "Adreno 5xx", 512),
        ("Adreno (TM) 610", "Adreno 6xx", 512),
        ("FD650", "Adreno 6xx", 3072),
        ("Adreno650v3", "Adreno 6xx", 3072),
        ("Adreno730v2", "Adreno 7xx", 4096),
        ("QUALCOMM Adreno(TM) 740", "Adreno 7xx", 6144),
        ("Qualcomm(R) Adreno(TM) X1-85 GPU", "Adreno 7xx", 6144),
        ("Snapdragon 8cx Gen 3", "Adreno 6xx", 8192),
        ("Adreno830", "Adreno 8xx", 6144),
    ],
)
def test_a_name_is_found_whoever_says_it(name: str, row: str, items: int) -> None:
    assert (gpu_of(name, {}).name, gpu_of(name, {}).items) == (row, items)


@pytest.mark.parametrize(
    ("name", "row", "wave"),
    [
        ("Mali-T604", "Mali Midgard", 4),
        ("Mali-T880", "Mali Midgard", 4),
        ("Mali-G31", "Mali Bifrost", 4),
        ("Mali-G72 MP18", "Mali Bifrost", 4),
        ("Mali-G52 r1 MC1", "Mali Bifrost", 8),
        ("Mali-G76 MP10", "Mali Bifrost", 8),
        ("Mali-G57 MC2 r0p1", "Mali Valhall", 16),
        ("Mali-G68", "Mali Valhall", 16),
        ("Mali-G78 r0p1", "Mali Valhall", 16),
        ("Mali-G310", "Mali Valhall", 16),
        ("Mali-G510", "Mali Valhall", 16),
        ("Mali-G610 r0p0", "Mali Valhall", 16),
        ("Mali-G615 MC2", "Mali Valhall", 16),
        ("Mali-G715-Immortalis MC11 r1p2", "Mali Valhall", 16),
        ("Immortalis-G715", "Mali Valhall", 16),
        ("Mali-G620", "Mali 5th generation", 16),
        ("Immortalis-G720 MC12", "Mali 5th generation", 16),
        ("Mali-G725", "Mali 5th generation", 16),
        ("Immortalis-G925", "Mali 5th generation", 16),
        ("Mali-G1-Ultra MC12", "Mali 5th generation", 16),
        ("Mali", "any Mali", 16),
        ("PowerVR Rogue GX6250", "PowerVR Rogue GX", 32),
        ("PowerVR Rogue G6110", "PowerVR Rogue GX", 32),
        ("PowerVR Rogue GE8320", "PowerVR", 32),
        ("PowerVR B-Series BXM-8-256", "PowerVR", 32),
        ("IMG DXT-48-1536", "PowerVR", 32),
        ("Intel(R) UHD Graphics 620", "Intel", 16),
        ("Intel(R) Iris(R) Xe Graphics", "Intel", 16),
        ("Intel(R) Arc(TM) A770 Graphics", "Intel", 16),
        ("NVIDIA H100 80GB HBM3", "NVIDIA", 64),
        ("Tesla T4", "NVIDIA", 64),
        ("pthread-Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz", None, 64),
        ("AMD Radeon Graphics (gfx1103)", None, 64),
    ],
)
def test_a_family_is_known_by_what_its_driver_calls_it(name: str, row: str | None, wave: int) -> None:
    gpu = gpu_of(name, H200)
    assert (gpu.name, gpu.wave) == (row or name, wave)
    assert gpu.work_group % gpu.wave == 0 and gpu.items % gpu.wave == 0
    assert (gpu.local_bytes == 0) == ("Mali" in gpu.name)


def test_a_device_s_own_cores_count() -> None:
    assert gpu_of("Mali-G78 r0p1", {}, 20).items == 20 * 512
    assert gpu_of("Mali-T880", {}, 12).items == 12 * gpu_of("Mali-T880", {}, 1).items
    assert gpu_of("Intel(R) UHD Graphics 620", {}, 24).items == 24 * 7 * 16
    assert gpu_of("Adreno 650", {}, 2) == gpu_of("Adreno 650", {}), "the table has them"
    phone = platform_named("android-arm64-v8a")
    like = PackageLike("a phone", "gs101", "Mali-G78 r0p1", "r32p1", True, (), {}, (), compute_units=20)
    settings = load_settings({"compile.target": "opencl"}).settings
    gpu = package_target(phone, settings, like).gpu
    assert gpu is not None and (gpu.name, gpu.items) == ("Mali Valhall", 20 * 512)
    assert "compute_units" not in model_target("mali", phone, 28, like).spec


@pytest.mark.parametrize(("name", "like"), [("Adreno 699", "Adreno 650"), ("Adreno 899", "Adreno 830")])
def test_one_without_a_row_has_its_generation_s_usual(name: str, like: str) -> None:
    assert gpu_of(name, {}) == gpu_of(like, {})


@pytest.mark.parametrize("name", ["QUALCOMM Adreno(TM)", "NVIDIA H200", "Adreno 1234", "pocl 650"])
def test_what_says_no_adreno_has_what_suits_any(name: str) -> None:
    gpu = gpu_of(name, {})
    assert gpu.name == ("NVIDIA" if "NVIDIA" in name else name)
    assert (gpu.wave, gpu.work_group, gpu.items, gpu.sums, gpu.local_bytes) == (
        ANY_ADRENO.wave,
        ANY_ADRENO.work_group,
        ANY_ADRENO.items,
        ANY_ADRENO.sums,
        ANY_ADRENO.local_bytes,
    )


def test_the_default_asks_for_no_more_local_memory_than_any_has() -> None:
    rows = [gpu_of(f"Adreno {chip.models.split()[0]}", {}) for chip in table._CHIPS]
    assert gpu_of("", {}) == ANY_ADRENO
    assert ANY_ADRENO.local_bytes == min(row.local_bytes for row in rows)
    for row in rows:
        assert row.work_group % row.wave == 0 and row.items % row.wave == 0
        assert row.sums == 1 << (row.sums.bit_length() - 1), "tiles are powers of two"


def test_a_device_s_limits_come_before_the_table() -> None:
    assert gpu_of("Adreno 650", H200).local_bytes == 49152 // 2
    assert gpu_of("", H200).local_bytes == ANY_ADRENO.local_bytes, "nobody knows that it may use more"
    assert gpu_of("", {"max_shared_memory_per_block": 4096}).local_bytes == 2048
    small = gpu_of("Adreno 650", {"max_num_threads": 32, "max_threads_per_block": 32})
    assert (small.work_group, small.wave) == (32, 32)


def test_a_mali_s_local_memory_holds_no_sums() -> None:
    small = gpu_of("Mali-T720", {"max_threads_per_block": 32, "max_shared_memory_per_block": 32768})
    assert (small.name, small.local_bytes, small.work_group) == ("Mali Midgard", 0, 32)
    phone = platform_named("android-arm64-v8a")
    any_mali = model_target("mali", phone, 28).gpu
    assert any_mali is not None and any_mali == gpu_of("Mali", {}) and any_mali.local_bytes == 0


def test_every_target_for_a_gpu_knows_it() -> None:
    phone = platform_named("android-arm64-v8a")
    limits = {"max_num_threads": 64, "texture_spatial_limit": 16384}
    assert model_target("adreno", phone, 28).gpu == ANY_ADRENO
    device = PackageLike("a phone", "SM8550", "Adreno740v2", "V@0615", True, (), limits, ())
    like = model_target("adreno", phone, 28, device).gpu
    assert like is not None and (like.name, like.work_group) == ("Adreno 7xx", 64)
    words = model_target("opencl -device=adreno -max_num_threads=32", phone, 28).gpu
    assert words is not None and words.work_group == 32
    for other in ("adreno-buffer", "opencl"):
        assert model_target(other, phone, 28).gpu == ANY_ADRENO
    assert model_target("cpu", phone, 28).gpu is None


def test_a_compile_for_a_connected_device_takes_its_gpu() -> None:
    settings = load_settings({"compile.target": "adreno"}).settings
    phone = platform_named("android-arm64-v8a")
    limits = {"max_threads_per_block": 512, "texture_spatial_limit": 16384, "texture_depth_limit": 2048}
    like = PackageLike("a phone", "SM8450", "Adreno730v2", "V@0615", True, (), limits, ())
    gpu = package_target(phone, settings, like).gpu
    assert gpu is not None and (gpu.name, gpu.sums) == ("Adreno 7xx", 16)
    assert package_target(phone, settings, None).gpu == ANY_ADRENO
