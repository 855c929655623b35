#!/bin/sh
# Make a base image for Dockerfile.gpu where no image registry can be reached.
#
# usage: tools/base-image.sh [--tar FILE] [--tag IMAGE]
#
# The image is a minimal Debian or Ubuntu of this machine's own release, with Python, from the
# package mirror that this machine is configured for. The machine's certificate authorities go
# into it, so that pip trusts in a build whatever this machine trusts.
#
#   --tar FILE   keep the file system as FILE, and start from it when it is there already
#   --tag IMAGE  the image's name; without it: lab-base:CODENAME (lab-base:bookworm)
#
# It needs root, debootstrap, an engine that `docker` reaches, 0.5 GB below $TMPDIR, and takes a
# minute. Then: LAB_BASE_IMAGE=lab-base:bookworm docker compose build
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
        *) fail "unknown argument $1; see $0 --help" 2 ;;
    esac
done

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$codename" ] || fail 'this machine is no Debian or Ubuntu; give docker a base image yourself'
tag=${tag:-lab-base:$codename}

work=$(mktemp -d "${TMPDIR:-/var/tmp}/lab-base.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -z "$tar" ] || [ ! -e "$tar" ]; then
    [ "$(id -u)" = 0 ] || fail 'debootstrap needs root; run it with sudo'
    command -v debootstrap >/dev/null || fail 'no debootstrap; run apt-get install debootstrap'
    # The mirror as apt is configured here; debootstrap's own default where apt names none.
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk -v release="$codename" '$2 == release { print $1; exit }')
    echo "base-image: debootstrap $codename" >&2
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
        "$codename" "$work/root" ${mirror:+"$mirror"} >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; fail 'debootstrap failed; see the lines above'; }
    chroot "$work/root" python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "the Python of $codename is older than 3.11; use a machine with a newer release"
    if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
        cp /etc/ssl/certs/ca-certificates.crt "$work/root/etc/ssl/certs/ca-certificates.crt"
    fi
    (cd "$work/root" && rm -rf var/cache/apt/* var/lib/apt/lists/* usr/share/doc/* \
        usr/share/man/* usr/share/locale/* etc/hostname etc/resolv.conf)
    tar=${tar:-$work/base.tar}
    mkdir -p "$(dirname "$tar")"
    # Written beside its place and renamed: an interrupted run leaves no half file to start from.
    tar --create --numeric-owner --one-file-system --directory "$work/root" --file "$tar.$$" .
    mv "$tar.$$" "$tar"
fi

docker import --change 'CMD ["python3"]' "$tar" "$tag" >/dev/null
echo "base-image: $tag is $(docker image inspect --format '{{.Size}}' "$tag" | awk '{ printf "%d MB", $1 / 1e6 }')" >&2
