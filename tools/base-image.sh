#!/bin/sh
# Make a base image for Dockerfile.gpu on a host without access to an image registry.
#
# usage: tools/base-image.sh [--tar FILE] [--tag IMAGE]
#
# The image is a minimal Debian or Ubuntu with Python, of the same release as this host and from
# the package mirror of this host. It contains the host's certificate authorities, so that pip
# accepts the same servers in a build as on the host.
#
#   --tar FILE   write the file system to FILE; if FILE exists, use it instead of debootstrap.
#                Without --tag, make no image.
#   --tag IMAGE  the image's name (default: lab-base:CODENAME, for example lab-base:bookworm)
#
# The script needs root, debootstrap, a Docker engine for the image, and 0.5 GB in $TMPDIR. It takes a minute.
# Then run: LAB_BASE_IMAGE=lab-base:bookworm docker compose build
set -eu

fail() {
    echo "base-image: error: $1" >&2
    exit "${2:-1}"
}

tar='' tag=''
while [ $# -gt 0 ]; do
    case $1 in
        --tar) tar=${2:?--tar needs a file}; shift 2 ;;
        --tag) tag=${2:?--tag needs a name}; shift 2 ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
        *) fail "unknown argument $1; run $0 --help" 2 ;;
    esac
done

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$codename" ] || fail 'this host is not Debian or Ubuntu; set LAB_BASE_IMAGE to another image'
[ -n "$tar" ] || tag=${tag:-lab-base:$codename}

work=$(mktemp -d "${TMPDIR:-/var/tmp}/lab-base.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -z "$tar" ] || [ ! -e "$tar" ]; then
    [ "$(id -u)" = 0 ] || fail 'debootstrap needs root; run it with sudo'
    command -v debootstrap >/dev/null ||
        fail 'debootstrap is not installed; run apt-get install debootstrap'
    # The mirror of apt's configuration; without one, debootstrap uses its default.
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk -v release="$codename" '$2 == release { print $1; exit }')
    echo "base-image: debootstrap $codename" >&2
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
        "$codename" "$work/root" ${mirror:+"$mirror"} >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; fail 'debootstrap failed; see the lines above'; }
    chroot "$work/root" python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "the Python of $codename is older than 3.11; use a host with a newer release"
    if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
        cp /etc/ssl/certs/ca-certificates.crt "$work/root/etc/ssl/certs/ca-certificates.crt"
    fi
    (cd "$work/root" && rm -rf var/cache/apt/* var/lib/apt/lists/* usr/share/doc/* \
        usr/share/man/* usr/share/locale/* etc/hostname etc/resolv.conf)
    tar=${tar:-$work/base.tar}
    mkdir -p "$(dirname "$tar")"
    # Write a temporary file and rename it: an interrupted run leaves no incomplete archive.
    tar --create --numeric-owner --one-file-system --directory "$work/root" --file "$tar.$$" .
    mv "$tar.$$" "$tar"
fi

[ -n "$tag" ] || exit 0
docker import --change 'CMD ["python3"]' "$tar" "$tag" >/dev/null
echo "base-image: $tag is $(docker image inspect --format '{{.Size}}' "$tag" | awk '{ printf "%d MB", $1 / 1e6 }')" >&2
