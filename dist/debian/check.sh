#!/bin/bash
# Installs the packages of a folder in a clean Debian root, runs a cell and a mount there, updates,
# removes and purges: check.sh ROOT FOLDER, run by `cargo xtask dist --check` with a network, mounts and
# processes of its own.
set -euo pipefail
root=$1
debs=$2
passed=0

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
ok() {
    echo "ok: $*"
    passed=$((passed + 1))
}
inside() {
    chroot "$root" /usr/bin/env -i HOME=/srv LC_ALL=C.UTF-8 PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        DEBIAN_FRONTEND=noninteractive "$@"
}
# Waits up to a minute for a command to succeed.
soon() {
    for _ in $(seq 120); do
        inside "$@" >/dev/null 2>&1 && return
        sleep 0.5
    done
    inside "$@"
}
start_cell() {
    inside sh -c 'echo $$ >/run/cell; exec afar up --cell check.test' >>"$root/var/log/cell" 2>&1 &
    cell=$!
    soon afar ls /afs/check.test
}
stop_cell() {
    kill -TERM "$(cat "$root/run/cell")"
    wait "$cell" || fail "the cell does not end in order"
}

ip link set lo up
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mkdir "$root/debs"
cp "$debs"/afar*.deb "$root/debs"
# The same packages, a version later.
for deb in "$debs"/afar_*.deb "$debs"/afar-openafs-names_*.deb; do
    dpkg-deb -R "$deb" "$root/debs/tree"
    sed -i 's/^Version: .*/&+check/; s/(= \(.*\))/(= \1+check)/' "$root/debs/tree/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone -b "$root/debs/tree" "$root/debs/new-$(basename "$deb")" >/dev/null
    rm -r "$root/debs/tree"
done

echo "== install =="
inside sh -c 'dpkg -i /debs/afar*.deb'
ok "it installs with nothing but what a minimal Debian has"
inside afar version
for file in grafana/afar.json prometheus/afar.rules.yml bpftrace/volume_top.bt; do
    inside test -s "/usr/share/afar/$file" || fail "there is no $file"
done
for name in vos pts fs bos; do
    inside "$name" version | grep -q '^afar ' || fail "$name is not afar's"
done
ok "vos, pts, fs and bos are afar's"
inside bash -n /usr/share/bash-completion/completions/afar || fail "the completions of bash"
# minbase leaves manual pages out by a setting of dpkg in some images, and not here.
pages=("$root"/usr/share/man/man1/afar*.1.gz)
[ "${#pages[@]}" -gt 100 ] || fail "${#pages[@]} pages only"
[ -s "$root/usr/share/man/man1/vos.1.gz" ] || [ -L "$root/usr/share/man/man1/vos.1.gz" ] ||
    fail "no page of the name vos"
ok "completions and ${#pages[@]} manual pages are there"
inside dpkg --verify afar afar-openafs-names || fail "files are not as packaged"
[ "$(inside sh -c 'dpkg-query -W -f "\${Conffiles}" afar | grep -c etc')" = 2 ] || fail "conffiles"

# A minimal Debian has no systemd: this says what is asked of one that runs all of afar's units.
mkdir -p "$root/run/systemd/system" "$root/usr/local/bin"
cat >"$root/usr/local/bin/systemctl" <<'END'
#!/bin/sh
case "$*" in
*list-units*afar-mount*) echo afar-mount.service loaded active running ;;
*list-units*.socket*) echo afar.socket loaded active running ;;
*list-units*) printf '%s loaded active running\n' afar-mount.service afar.service afar@b.service ;;
*is-enabled*) echo enabled ;;
*) echo "$*" >>/srv/asked ;;
esac
END
chmod +x "$root/usr/local/bin/systemctl"
# What was asked of it since the last time, without words that say nothing here.
asked() {
    sed 's/--[a-z]* //g; s/^is-active .*//; /^daemon-reload/d; /^$/d; s/ *--$//' "$root/srv/asked" | tr '\n' ';'
    : >"$root/srv/asked"
}

echo "== a cell and a mount =="
start_cell
inside vos create 127.0.0.1 a user.ann
inside pts createuser ann
inside fs mkmount --localauth /afs/check.test/ann user.ann
inside mkdir -p /mnt/afs
inside mount -t afar check.test /mnt/afs -o localauth,server=127.0.0.1
head -c 3000000 /dev/urandom >"$root/srv/file"
inside cp /srv/file /mnt/afs/ann/file
inside cmp /srv/file /mnt/afs/ann/file
inside afar cp --localauth /afs/check.test/ann/file /srv/again
inside cmp /srv/file /srv/again
ok "a cell, a volume, and a mount by mount(8)"

echo "== update =="
# It depends on the one version, and is not there where the binary had no symbols.
inside dpkg -r afar-dbgsym
: >"$root/srv/asked"
said=$(inside sh -c 'dpkg -i /debs/new-afar_*.deb /debs/new-afar-openafs-names_*.deb 2>&1')
echo "$said"
grep -q '/mnt/afs is still served by the version' <<<"$said" || fail "it does not tell of the mount"
asked=$(asked)
[ "$asked" = "try-restart afar.service;try-restart afar@b.service;" ] ||
    fail "the update does not restart the servers, and them alone: $asked"
inside cmp /srv/file /mnt/afs/ann/file
inside vos examine user.ann | grep -q user.ann
ok "an update leaves the cell and the mount as they are"

echo "== remove while in use =="
inside sh -c 'cd /mnt/afs/ann && echo $$ >/run/user && exec sleep 1000' &
user=$!
soon test -s /run/user
inside dpkg -r afar-openafs-names
! inside sh -c 'command -v vos' || fail "vos is left"
said=$(inside sh -c 'dpkg -r afar 2>&1; echo "rc $?"')
echo "$said"
grep -q 'rc 0' <<<"$said" && fail "it is removed while a mount is in use"
grep -q 'is in use by sleep' <<<"$said" || fail "who uses the mount is not told"
grep -q 'still mounted, so the package is not removed: /mnt/afs' <<<"$said" || fail "no reason is told"
inside cmp /srv/file /mnt/afs/ann/file
[ "$(inside dpkg-query -W -f '${db:Status-Status}' afar)" = installed ] || fail "half removed"
[ -z "$(asked)" ] || fail "units are stopped though nothing is removed"
ok "a mount in use keeps the package, and says so"

echo "== remove =="
kill "$(cat "$root/run/user")"
wait "$user" || true
echo "written last" | inside tee /mnt/afs/ann/last >/dev/null
inside dpkg -r afar
! inside sh -c 'command -v afar' || fail "afar is left"
! grep -q " $root/.* fuse\.afar " /proc/mounts || fail "a mount is left"
[ -s "$root/etc/afar/CellServDB" ] || fail "the configuration is gone already"
[ -d "$root/var/lib/afar" ] || fail "volumes are gone"
asked=$(asked)
case "$asked" in
"stop afar-mount.service;stop afar.socket;"*"stop afar.service;stop afar@b.service;"*) ;;
*) fail "units are not stopped in order: $asked" ;;
esac
stop_cell
ok "removal unmounts, and leaves configuration and volumes"

echo "== install again =="
inside sh -c 'dpkg -i /debs/new-afar_*.deb'
start_cell
[ "$(inside afar cat --localauth /afs/check.test/ann/last)" = "written last" ] || fail "what was written last is lost"
inside afar cat --localauth /afs/check.test/ann/file | cmp - "$root/srv/file"
stop_cell
ok "the cell is there again with all that was written"

echo "== purge =="
said=$(inside dpkg -P afar 2>&1)
echo "$said"
grep -q '/var/lib/afar is left' <<<"$said" || fail "it does not say that volumes are left"
[ -d "$root/var/lib/afar" ] || fail "volumes are gone"
left=$(cd "$root" && find etc usr var run -path var/lib/afar -prune -o -name '*afar*' -print | grep -v '^var/log/' || true)
[ -z "$left" ] || fail "purge leaves $left"
inside sh -c '! ls /etc/alternatives/vos /usr/bin/vos' 2>/dev/null || fail "alternatives are left"
ok "purge leaves nothing but the volumes, and says where"

echo "$passed passed, 0 failed"
