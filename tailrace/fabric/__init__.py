"""What carries packets between functions; one interface (`base.Fabric`), one module for each kind."""

from tailrace.fabric.base import Fabric, PortState

__all__ = ["Fabric", "PortState"]
