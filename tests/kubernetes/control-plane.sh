#!/bin/sh
# Build Kubernetes' programs from the source package of this Debian.
#
#     control-plane.sh DIRECTORY VERSION
#
# It needs root, golang-go, gcc and apt's sources of packages. Its standard output is the progress.
set -eu
out=$1
version=$2
work=/build
export GOPATH="$work/go" GOCACHE="$work/cache" GO111MODULE=off CGO_ENABLED=0
mkdir -p "$work" "$out"
cd "$work"

echo "fetching the source package"
apt-get update -q >&2
apt-get source -q kubernetes >&2
source=$(find "$work" -maxdepth 1 -type d -name 'kubernetes-*')
package=$(dpkg-parsechangelog -l "$source/debian/changelog" -S Version)
# Upstream's version is in the package's: 1.20.5+really1.20.2-1.1.
found=$(echo "$package" | sed 's/.*really//; s/-.*//')
if [ "$found" != "$version" ]; then
    echo "the source package has Kubernetes $found, and the tests want $version" >&2
    exit 1
fi
mkdir -p "$GOPATH/src/k8s.io"
ln -s "$source" "$GOPATH/src/k8s.io/kubernetes"
cd "$GOPATH/src/k8s.io/kubernetes"

# The source has all generated files but this one.
echo "generating the OpenAPI definitions"
go build -o "$work/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
inputs=$(grep -rlE --include='*.go' '^// \+k8s:openapi-gen=' vendor/k8s.io/*/ |
    grep -Ev '^vendor/k8s.io/(code-generator|sample-apiserver)/' | xargs -n1 dirname | sort -u |
    sed 's,^,k8s.io/kubernetes/,' | paste -sd,)
"$work/openapi-gen" --input-dirs "$inputs" --output-package k8s.io/kubernetes/pkg/generated/openapi \
    --output-file-base zz_generated.openapi --report-filename "$work/violations" \
    --go-header-file vendor/k8s.io/code-generator/hack/boilerplate.go.txt >&2

minor=${version#*.}
minor=${minor%%.*}
flags="-s -w"
for name in component-base/version client-go/pkg/version; do
    name=k8s.io/kubernetes/vendor/k8s.io/$name
    flags="$flags -X $name.gitVersion=v$version -X $name.gitMajor=1 -X $name.gitMinor=$minor"
done
for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
    echo "compiling $program"
    go build -tags providerless -ldflags "$flags" -o "$out/$program" "k8s.io/kubernetes/cmd/$program"
done
gcc -Os -static -o "$out/pause" build/pause/linux/pause.c
cp /usr/bin/etcd "$out"

{
    echo "kubernetes $package"
    # shellcheck disable=SC2016  # the variable is dpkg's
    echo "etcd-server $(dpkg-query --show --showformat '${Version}' etcd-server)"
    echo "golang-go $(go env GOVERSION | sed 's/^go//')"
} >"$out/versions"
