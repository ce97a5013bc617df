#!/bin/bash
# The first hour of a new user, with the packages: a server at home; a laptop 20 ms and 200 Mbit/s away, where a
# film is copied and watched and git and git-annex work; a second user; then the server starts again at another
# address and the laptop's lid is closed for a while. first-hour.sh ROOT [SECONDS], run by
# `cargo xtask dist --first-hour`; ROOT is a Debian root with the packages and git-annex, and stays as it is.
set -euo pipefail
root=$1
asleep=${2:-60}
afar=$root/usr/bin/afar
cell=home.example
link=hour$$
work=$(mktemp -d -t first-hour.XXXXXX)
began=$SECONDS

say() {
    printf '%4d s  %s\n' $((SECONDS - began)) "$*"
}
fail() {
    say "FAILED: $*" >&2
    exit 1
}
end() {
    for first in ${server_pid:-} ${laptop_pid:-}; do
        kill -9 "$first" 2>/dev/null || true
    done
    sleep 0.5
    "$afar" link down "$link" >/dev/null 2>&1 || true
    rm -rf --one-file-system "$work"
}
trap end EXIT
# A machine at one end of the link: a root of its own over the common one. Prints its first process.
machine() {
    local at=$1 mark=30000$$.$2 pid
    "$afar" link exec "$link" "$at" unshare --mount --pid --fork --kill-child --propagation private -- bash -c "
        mkdir -p $work/$at && mount -t tmpfs machine $work/$at && cd $work/$at && mkdir upper work root
        mount -t overlay overlay -o lowerdir=$root,upperdir=upper,workdir=work root
        mount --rbind /dev root/dev && mount -t proc proc root/proc && mount -t tmpfs run root/run
        mknod -m 666 root/run/fuse c 10 229 && mount --bind root/run/fuse root/dev/fuse
        ln -sf ../proc/self/mounts root/etc/mtab
        chroot root sleep $mark & wait" >/dev/null 2>&1 &
    for _ in $(seq 200); do
        pid=$(pgrep -fx "sleep $mark") && echo "$pid" && return
        sleep 0.1
    done
    fail "no machine at $at"
}
# Tokens are in files of the machine's own: keyrings of the kernel are those of the users of all of them.
enter() {
    local pid=$1 user=$2 home=$3
    shift 3
    nsenter -t "$pid" --mount --pid --net --root --wdns="$home" -- setpriv --reuid "$user" --regid "$user" \
        --clear-groups env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME="$home" AFAR_TOKENS="$home/tokens" \
        LC_ALL=C.UTF-8 TERM=dumb "$@"
}
server() {
    enter "$server_pid" 0 /srv "$@"
}
laptop() {
    enter "$laptop_pid" 1000 /srv/ann "$@"
}
start_server() {
    server sh -c "afar up /srv/cell --cell $cell --listen 0.0.0.0 >/srv/log 2>&1 & echo \$! >/srv/pid"
    for _ in $(seq 100); do
        server afar ls "/afs/$cell" >/dev/null 2>&1 && return
        sleep 0.1
    done
    server cat /srv/log
    server afar ls "/afs/$cell" || true
    fail "the cell does not start"
}
# By what name the laptop finds the server: what a home with changing addresses has in DNS.
name_server() {
    enter "$laptop_pid" 0 /srv sh -c "echo '127.0.0.1 localhost
$1 server.home' >/etc/hosts"
}

"$afar" link up "$link" --rtt 20ms --rate 200mbit >/dev/null
server_pid=$(machine srv 1)
laptop_pid=$(machine cli 2)
address=$(server sh -c "ip -o -4 addr show scope global" | grep -o '[0-9.]*/[0-9]*' | head -1)
device=$(server sh -c "ip -o -4 addr show scope global" | awk '{ print $2; exit }')
name_server "${address%/*}"
enter "$laptop_pid" 0 /srv sh -c 'useradd --uid 1000 --create-home --home-dir /srv/ann ann 2>/dev/null || true; id ann >/dev/null'
file=/proc/$laptop_pid/root/srv/ann/film
head -c 700000000 /dev/urandom >"$file"
sum=$(sha256sum <"$file")
began=$SECONDS

start_server
say "the cell runs"
server sh -c 'echo "secret of ann" | afar pts createuser ann --password-stdin'
server afar vos create localhost a home.ann -maxquota 0
server afar fs mkmount --localauth "/afs/$cell/ann" home.ann
server afar fs setacl --localauth "/afs/$cell/ann" ann all
say "a user and a home"
line=$(server grep -o 'afar://[^ ]*' /srv/log | head -1 | sed 's/@[^#:]*/@server.home/')
say "the line: $line"
laptop sh -c "echo 'secret of ann' | afar login '$line' ann --password-stdin"
laptop mkdir afs
laptop afar mount afs
home=/srv/ann/afs/$cell/ann
laptop ls "$home" || fail "no home on the laptop"
say "logged in and mounted"
copying=$SECONDS
laptop cp film "$home/film"
say "700 MB copied in $((SECONDS - copying)) s"
laptop perl -e '
    my ($copied, $whole) = @ARGV;
    open(my $a, "<", $copied) && open(my $b, "<", $whole) || die "$!";
    for (1 .. 40) {
        my $at = int(rand(699_000_000));
        seek($_, $at, 0) || die "$!" for $a, $b;
        read($a, my $x, 300_000) == 300_000 && read($b, my $y, 300_000) == 300_000 || die "short at $at";
        $x eq $y || die "different at $at";
    }' "$home/film" /srv/ann/film
say "the film watched, with 40 seeks"
laptop sh -ec "cd $home
    git config --global user.name ann; git config --global user.email ann@$cell
    git config --global init.defaultBranch main
    git init -q notes; cd notes; echo hello >a; git add a; git commit -qm first; git log --oneline"
say "git"
laptop sh -ec "cd $home/notes
    git annex init -q server; head -c 3000000 /dev/urandom >big; git annex add -q big; git commit -qm big
    git config annex.crippledfilesystem >/dev/null && { echo 'git-annex takes the mount for crippled'; exit 1; }
    cd /srv/ann; git clone -q $home/notes clone; cd clone; git annex init -q laptop
    git annex get -q big; git annex drop -q big; git annex copy -q --from origin big; cmp big $home/notes/big"
say "git-annex: init, add, clone, get, drop, copy"
server sh -c 'echo "secret of bob" | afar pts createuser bob --password-stdin'
laptop afar fs setacl "$home" bob read
laptop sh -ec "export HOME=/srv/ann/bob AFAR_TOKENS=/srv/ann/bob/tokens; mkdir -p \$HOME
    echo 'secret of bob' | afar login '$line' bob --password-stdin; afar ls /afs/$cell/ann | grep -q film"
say "bob was invited by one command"
server sh -c 'kill $(cat /srv/pid); while kill -0 $(cat /srv/pid) 2>/dev/null; do sleep 0.1; done'
say "the server has stopped"
server ip addr del "$address" dev "$device"
server ip addr add "${address%.*}.77/24" dev "$device"
name_server "${address%.*}.77"
start_server
say "the server is there again, at another address"
away=$SECONDS
laptop timeout 60 sh -c "echo after >$home/after && cat $home/after && ls $home" || fail "after the new address"
say "the laptop goes on after $((SECONDS - away)) s"
processes=$(enter "$laptop_pid" 0 /srv pgrep -f "afar mount" | tr "\n" " ")
enter "$laptop_pid" 0 /srv sh -c "kill -STOP $processes"
say "the lid is closed"
sleep "$asleep"
enter "$laptop_pid" 0 /srv sh -c "kill -CONT $processes"
opened=$SECONDS
laptop timeout 60 sh -c "echo again >>$home/after && cat $home/after" || fail "after the sleep"
say "the lid is open: written and read after $((SECONDS - opened)) s"
[ "$(laptop sha256sum "$home/film" | cut -d' ' -f1)" = "${sum%% *}" ] || fail "the film is another one"
laptop afar umount afs
say "all goes on"
