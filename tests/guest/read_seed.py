"""What cloud-init makes of a seed, as JSON. It is run by Debian's Python: read_seed.py MODULES FOLDER, where the seed's
files lie in FOLDER/seed/nocloud."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from cloudinit import helpers, net
from cloudinit.config import schema
from cloudinit.net import eni, netplan, network_state, networkd
from cloudinit.sources.DataSourceNoCloud import DataSourceNoCloud

folder = Path(sys.argv[2])
source = DataSourceNoCloud({}, None, helpers.Paths({"cloud_dir": str(folder), "run_dir": str(folder / "run")}))
found = source._get_data()
state = network_state.parse_net_config_data(source.network_config)
written = {}
for renderer in (networkd, eni, netplan):
    target = folder / renderer.__name__
    target.mkdir()
    renderer.Renderer({}).render_network_state(state, target=str(target))
    written[renderer.__name__.rpartition(".")[2]] = {
        str(each.relative_to(target)): each.read_text() for each in sorted(target.rglob("*")) if each.is_file()
    }
schema.validate_cloudconfig_file(str(folder / "seed/nocloud/user-data"), schema.get_schema())
answer = {
    "found": found,
    "instance": source.get_instance_id(),
    "hostname": str(source.metadata["local-hostname"]),
    "user_data": source.get_userdata_raw().decode(),
    "renamed": {mac: name for mac, name, *_ in net.extract_physdevs(source.network_config)},
    "written": written,
}
print(json.dumps(answer))
