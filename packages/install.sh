#!/bin/sh
# Installs metamcp {{version}} for this user: sh install.sh
#
#   METAMCP_PREFIX      where to, default ~/.local: bin/metamcp and share/
#   METAMCP_BASE_URL    where the files of the release are; https, or this machine
#   sh install.sh --uninstall   removes what was installed, and leaves ~/.metamcp alone
#
# What is fetched is compared with the release's SHA256SUMS and, where `gh` is installed and signed in, with GitHub's
# attestation of who built it. Nothing runs as root, and nothing outside of the prefix is written.
set -eu

version='{{version}}'
repository='{{repository}}'
base=${METAMCP_BASE_URL:-$repository/releases/download/v$version}
prefix=${METAMCP_PREFIX:-${HOME:?HOME is not set; METAMCP_PREFIX says where to install}/.local}

say() { printf 'metamcp: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

uninstall() {
    list=$prefix/share/metamcp/files
    [ -f "$list" ] || fail "there is nothing to remove: $list does not exist"
    while IFS= read -r file; do
        case $file in
        bin/* | share/*) rm -f -- "$prefix/$file" ;;
        esac
    done <"$list"
    rm -rf -- "$prefix/share/metamcp" "$prefix/share/doc/metamcp"
    say "removed from $prefix; your configuration is in ~/.metamcp (metamcp init --undo should have run before)"
}

fetch() {
    # $1 the name, $2 where to; only https, but for this machine.
    case $base in
    https://*) protocol='=https' ;;
    http://127.0.0.1:* | http://localhost:*) protocol='=http' ;;
    *) fail "$base is not https" ;;
    esac
    if command -v curl >/dev/null 2>&1; then
        curl --fail --silent --show-error --location --proto "$protocol" --proto-redir "$protocol" \
            --retry 2 --output "$2" "$base/$1" || fail "cannot fetch $base/$1"
    elif command -v wget >/dev/null 2>&1; then
        # wget has no such limit for redirects on all systems; the checksum holds all the same.
        wget -q -O "$2" "$base/$1" || fail "cannot fetch $base/$1"
    else
        fail "curl or wget is needed to fetch $base/$1"
    fi
}

sha256() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum "$1" | cut -d ' ' -f 1
    elif command -v shasum >/dev/null 2>&1; then
        shasum -a 256 "$1" | cut -d ' ' -f 1
    else
        fail "sha256sum or shasum is needed to verify what is fetched"
    fi
}

label() {
    case $(uname -s) in
    Linux) system=linux ;;
    Darwin) system=macos ;;
    *) fail "there is no metamcp for $(uname -s) here; on Windows use install.ps1" ;;
    esac
    case $(uname -m) in
    x86_64 | amd64) processor=x86_64 ;;
    aarch64 | arm64) processor=aarch64 ;;
    *) fail "there is no metamcp for $(uname -m)" ;;
    esac
    # A shell that runs under Rosetta says x86_64.
    if [ "$system-$processor" = macos-x86_64 ] && [ "$(sysctl -n hw.optional.arm64 2>/dev/null || echo 0)" = 1 ]; then
        processor=aarch64
    fi
    printf '%s-%s\n' "$system" "$processor"
}

install() {
    label=$(label)
    name=metamcp-$version-$label
    archive=$name.tar.gz
    work=$(mktemp -d "${TMPDIR:-/tmp}/metamcp-install.XXXXXX")
    trap 'rm -rf -- "$work"' EXIT
    trap 'exit 1' HUP INT TERM

    say "fetching $archive"
    fetch SHA256SUMS "$work/SHA256SUMS"
    expected=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$archive\$/\1/p" "$work/SHA256SUMS")
    [ -n "$expected" ] || fail "the release at $base has no $archive"
    fetch "$archive" "$work/$archive"
    found=$(sha256 "$work/$archive")
    [ "$found" = "$expected" ] ||
        fail "$archive is not what SHA256SUMS says ($found instead of $expected); nothing was installed"
    if [ -n "${METAMCP_BASE_URL:-}" ]; then
        say "the checksum matches; a mirror has no attestation"
    elif command -v gh >/dev/null 2>&1 && gh auth status >/dev/null 2>&1; then
        gh attestation verify "$work/$archive" --repo "${repository#https://github.com/}" >/dev/null ||
            fail "$archive has no valid attestation of $repository; nothing was installed"
        say "the checksum and the attestation match"
    else
        say "the checksum matches; who built it was not verified (that needs gh, signed in)"
    fi

    tar -xzf "$work/$archive" -C "$work"
    [ "$("$work/$name/bin/metamcp" version)" = "metamcp $version" ] ||
        fail "the program does not run on this machine; nothing was installed"

    mkdir -p "$prefix/bin" "$prefix/share/metamcp"
    (cd "$work/$name" && find share -type f) >"$work/files"
    while IFS= read -r file; do
        mkdir -p "$prefix/$(dirname "$file")"
        put "$work/$name/$file" "$prefix/$file" 644
    done <"$work/files"
    # The program last, so that it never lacks what belongs to it.
    put "$work/$name/bin/metamcp" "$prefix/bin/metamcp" 755
    {
        cat "$work/files"
        echo bin/metamcp
        echo share/metamcp/installed-by
    } >"$prefix/share/metamcp/files"
    echo script >"$prefix/share/metamcp/installed-by"

    say "installed metamcp $version as $prefix/bin/metamcp"
    case :$PATH: in
    *:"$prefix/bin":*) say "next: metamcp demo, then metamcp init" ;;
    *) say "$prefix/bin is not in PATH; add it: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
}

# By a rename, so that a program that runs is not disturbed.
put() {
    cp "$1" "$2.new.$$"
    chmod "$3" "$2.new.$$"
    mv -f "$2.new.$$" "$2"
}

# All of it is read before any of it runs: a script that arrives in parts does nothing.
case ${1:-} in
'') install ;;
--uninstall) uninstall ;;
*) fail "unknown argument $1; the only one is --uninstall" ;;
esac
