#!/bin/sh
# Build the API server for custom resources from Debian's Go packages.
#
#     custom-resources.sh DIRECTORY
#
# It needs golang-go and golang-k8s-apiextensions-apiserver-dev.
set -eu
out=$1
export GOPATH=/usr/share/gocode GOCACHE=/cache GO111MODULE=off CGO_ENABLED=0
mkdir -p "$out"
echo "compiling apiextensions-apiserver"
go build -ldflags "-s -w" -o "$out/apiextensions-apiserver" k8s.io/apiextensions-apiserver
echo "go $(go env GOVERSION | sed 's/^go//')" >"$out/versions"
# shellcheck disable=SC2016  # the variables are dpkg's
dpkg-query --show --showformat '${Package} ${Version}\n' golang-k8s-apiextensions-apiserver-dev \
    >>"$out/versions"
