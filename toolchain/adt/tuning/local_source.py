"""This machine as the device to measure on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from adt.bundle.bundle import TargetBundle
from adt.device.place import THIS_MACHINE
from adt.rpc import wire
from adt.rpc.local_server import local_server
from adt.tuning import device_facts
from adt.tuning.sources import Lease, Presence, Sight


class LocalSource:
    """A server of our own on this machine."""

    keeps = True

    def __init__(self, bundle: TargetBundle, *, exclusive: bool = True) -> None:
        """
        Args:
            exclusive: what is measured runs on the processor, which then must have nothing else to do.
        """
        self.bundle = bundle
        self.exclusive = exclusive

    def presence(self) -> Presence:
        """Always there."""
        sight = Sight(THIS_MACHINE, device_facts.this_processor(), there=True)
        return Presence((THIS_MACHINE,), (sight,))

    @contextlib.contextmanager
    def lease(self, slot: str, computes: str) -> Iterator[Lease]:
        """See :class:`adt.tuning.sources.Source`."""
        processor = device_facts.this_processor()
        with local_server(self.bundle) as here:
            host, port = wire.parse_address(here.address)
            yield Lease(
                name=slot,
                label=processor,
                emulated=False,
                identity=device_facts.Identity(processor, "") if computes == "cpu" else None,
                key=THIS_MACHINE,
                host=host,
                port=port,
                match_key=here.key,
                seconds=None,
                alive=lambda: True,
                celsius=device_facts.celsius_here,
            )
