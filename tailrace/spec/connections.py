"""What functions that follow connections can be told of these (dataplane/functions/connections.h)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tailrace.spec.fields import Duration, Model, whole_seconds
from tailrace.spec.kind import Settings

MOST_CONNECTIONS = 1 << 24
#: Bytes of a connection, with its place in lists and when it changed, and of eight places in the index.
_CONNECTION, _BUCKET = 64 + 8 + 4, 32
#: Packet buffers that wait between queues, at each port (dataplane/functions/inboxes.h), and those of the function.
_INBOX, _BURSTS, _OWN, _BUFFER = 256, 64, 2048, 2560
_MIB = 1 << 20

Seconds = Annotated[Duration, whole_seconds("1s", "24h")]


class Timeouts(Model):
    """For how long a flow that is not seen is known."""

    tcp_half_open: Seconds = Field(30, validate_default=False, description="of TCP: before it is established")
    tcp_established: Seconds = Field(7440, validate_default=False, description="while it is (RFC 5382, REQ-5)")
    tcp_closing: Seconds = Field(240, validate_default=False, description="once an end has sent its last byte")
    tcp_closed: Seconds = Field(10, validate_default=False, description="after a reset")
    one_way: Seconds = Field(
        120,
        validate_default=False,
        description="of UDP and other protocols: while nobody has answered (RFC 4787, REQ-5)",
    )
    two_way: Seconds = Field(300, validate_default=False, description="once somebody has")
    query: Seconds = Field(60, validate_default=False, description="of ICMP's echo and timestamp (RFC 5508, REQ-2)")


class Following(Settings):
    """Of a kind that follows connections."""

    connections: int = Field(
        65536,
        ge=64,
        le=MOST_CONNECTIONS,
        description="the most flows that it knows; one more replaces one half open or ended, or is dropped",
    )
    timeouts: Timeouts = Field(default_factory=lambda: Timeouts(), description="how long a flow is known")

    def settings(self, replica: int) -> tuple[str, ...]:
        del replica
        times = (f"{name}={round(getattr(self.timeouts, name))}" for name in Timeouts.model_fields)
        return (f"connections={self.connections}", *times)

    def tables_mib(self, queues: int = 1) -> int:
        each = -(-self.connections // queues)
        buckets = 1 << (each // 2).bit_length()
        needed = each * _CONNECTION + buckets * _BUCKET + self.other_bytes(queues) // queues
        if queues > 1:
            needed += (2 * max(_INBOX, _BURSTS * queues) + _OWN) * _BUFFER
        return queues * (-(-needed // (2 * _MIB)) * 2 + 4)

    def other_bytes(self, queues: int) -> int:
        """What its other tables take, of all queues together."""
        del queues
        return 0
