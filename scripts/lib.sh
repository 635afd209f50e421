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

# The code name of this machine's release of Debian: bookworm, trixie.
debian_release() { sed -n 's/^VERSION_CODENAME=//p' /etc/os-release 2>/dev/null; }

# debian_sources [RELEASE]: this machine's Debian sources as "URI SUITE COMPONENTS", of its own release or of another one.
debian_sources() {
	local here
	here=$(debian_release)
	apt-get indextargets --format '$(ORIGIN)|$(CREATED_BY)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)' 2>/dev/null |
		sed -n "s/^Debian|Packages|\([^|]*\)|${here:-unknown}\(\(-[^|]*\)\?\)|main\$/\1 ${1:-$here}\2 main/p" | sort -u
}

# Where it has Debian from: Debian's own address where apt knows none.
debian_mirror() {
	local mirror
	mirror=$(debian_sources | awk '$2 !~ /-/ && !mirror { mirror = $1 } END { print mirror }')
	echo "${mirror:-http://deb.debian.org/debian}"
}
