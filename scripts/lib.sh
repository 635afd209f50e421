# Shared by the scripts here: where the checkout is, who owns it, and how to become root.
# shellcheck shell=bash
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf '==> %s\n' "$*" >&2; }
die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# Run a command as root: directly, or by sudo.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "this needs root: run it as root, or install sudo"
	fi
}

# Run a command as the checkout's owner, so that `sudo make` leaves no file behind that its owner cannot delete.
as_owner() {
	local uid gid
	read -r uid gid < <(stat -c '%u %g' "$top")
	if [ "$(id -u)" = 0 ] && [ "$uid" != 0 ]; then
		HOME=$(getent passwd "$uid" | cut -d: -f6) setpriv --reuid "$uid" --regid "$gid" --init-groups "$@"
	else
		"$@"
	fi
}

# Give what root made in the checkout back to the checkout's owner.
give_back() {
	local owner path
	owner=$(stat -c '%u:%g' "$top")
	for path in "$@"; do
		[ -z "$(find "$path" ! -uid "${owner%:*}" -print -quit 2>/dev/null)" ] || as_root chown -R "$owner" "$path"
	done
}
