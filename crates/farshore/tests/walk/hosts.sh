#!/bin/bash
# Two hosts on this machine, alpha and beta, on which the commands of a page are typed as they stand: mounts, network and name of each
# are its own, so the program, its configuration and its state are where the page says. Nothing of it is seen outside, or outlives it, and
# the machine's own files can be read only.
#
# usage: unshare --mount --net --pid --fork --kill-child --mount-proc bash hosts.sh FOLDER PROGRAM UNIT
#
# FOLDER/steps lists the steps: number, host, and "typed" for a block of the page, "meanwhile" for one whose end comes after the next
# block, "aside" for what the page does not show. The texts are FOLDER/NUMBER.sh, and what they print comes to FOLDER/NUMBER.out, which
# ends with "[done]". Else the walk ends there.
FOLDER=$1 PROGRAM=$2 UNIT=$3
# What the pages call the spare devices of a host.
DISKS=(/dev/vg0/data /dev/disk/by-id/wwn-0x5000c500a1b2c3d4 /dev/disk/by-id/wwn-0x5000c500e5f60718 /dev/disk/by-id/NEW)
export WALK=$FOLDER
. "$FOLDER/words.sh"

# Nothing of this machine can be written: only the walk's folder, and what is mounted after this.
seal() {
    local place
    while read -r _ _ _ _ place _; do
        place=$(printf %b "$place")
        # What another mount hides needs nothing.
        mount -o remount,bind,ro "$place" 2> /dev/null || ! mountpoint -q "$place" && continue
        echo "$place stays writable" >&2
        return 1
    done < /proc/self/mountinfo
    mount --bind "$FOLDER" "$FOLDER" && mount -o remount,bind,rw "$FOLDER"
}

# A directory of this host alone: empty.
own() {
    mount -t tmpfs -o mode=755 walk "$1"
}

# The same, and the machine's entries are found there too, for reading.
farm() {
    local real=/run/walk/real$1
    mkdir -p "$real" && mount --rbind "$1" "$real" && own "$1" && find "$real" -mindepth 1 -maxdepth 1 -exec ln -s -t "$1" {} +
}

# No disk of the machine is found there.
own_devices() {
    local real=/run/walk/real/dev node
    mkdir -p "$real" && mount --rbind /dev "$real" && own /dev && mkdir /dev/shm /dev/pts || return
    for node in null zero full random urandom tty fuse; do
        # A machine without a terminal, or without FUSE, has no such node.
        [ -c "$real/$node" ] || continue
        : > /dev/$node && mount --bind "$real/$node" /dev/$node || return
    done
    umount --lazy "$real" && own /dev/shm && chmod 1777 /dev/shm || return
    mount -t devpts -o ptmxmode=666 walk /dev/pts && ln -s pts/ptmx /dev/ptmx || return
    ln -s /proc/self/fd /dev/fd && ln -s fd/0 /dev/stdin && ln -s fd/1 /dev/stdout && ln -s fd/2 /dev/stderr
}

# Runs in the namespaces of a host, and holds them.
be_host() {
    local name=$1 address=$2
    local home=$FOLDER/$name
    # For the time until programs are found at their place again.
    PATH=$PATH:/run/walk/real/usr/bin
    mkdir -p "$home/disks" "$home/home" "$home/lib"
    # The view of the network's cards there belongs to the network in which it was mounted.
    mount --make-rprivate / && seal && mount -t sysfs -o ro walk /sys && hostname "$name" && ip link set lo up || return
    for directory in /run /srv /mnt /media; do own $directory || return; done
    # State directories stand on a disk.
    farm /usr/bin && farm /etc && farm /tmp && chmod 1777 /tmp && own_devices && mount --bind "$home/lib" /var/lib || return
    rm -f /etc/hosts /etc/hostname /etc/systemd /etc/sysctl.d /etc/fstab /etc/farshore
    rm -f /usr/bin/systemctl /usr/bin/journalctl /usr/bin/ssh /usr/bin/scp /usr/bin/farshore
    mkdir -p /etc/systemd/system /etc/sysctl.d /run/systemd/system /run/walk /dev/disk/by-id /dev/vg0 /media/safe
    : > /etc/fstab
    printf '127.0.0.1 localhost\n10.0.0.1 alpha\n10.0.0.2 beta\n' > /etc/hosts
    for program in systemctl journalctl ssh scp; do ln -s "$FOLDER/tools.sh" /usr/bin/$program; done
    ln -s "$PROGRAM" /usr/bin/farshore
    echo "$FOLDER" > /run/walk/folder
    cp "$UNIT" /run/walk/unit
    for disk in "${DISKS[@]}"; do new_disk "$disk" || return; done
    echo "$address" > "$home/address"
    exec sleep infinity
}

start_host() {
    unshare --mount --net --uts -- bash "$FOLDER/hosts.sh" "$FOLDER" "$PROGRAM" "$UNIT" "$1" "$2" &
    local pid=$!
    for try in $(seq 300); do
        [ -f "$FOLDER/$1/address" ] && echo $pid > "$FOLDER/$1/pid" && return
        kill -0 $pid 2> /dev/null || return
        sleep 0.02
    done
    return 1
}

# A cable between the hosts.
lay_cable() {
    ip link add walk-alpha type veth peer name walk-beta || return
    for name in alpha beta; do
        ip link set walk-$name netns "$(cat "$FOLDER/$name/pid")" name wan0 || return
        on $name "ip address add $(cat "$FOLDER/$name/address")/24 dev wan0 && ip link set wan0 up" || return
    done
}

# HOST SCRIPT
on() {
    nsenter --target "$(cat "$FOLDER/$1/pid")" --mount --net --uts -- env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME="$FOLDER/$1/home" LC_ALL=C.UTF-8 TZ=UTC WALK="$FOLDER" PROGRAM="$PROGRAM" UNIT="$UNIT" \
        bash -c ". '$FOLDER/words.sh' && cd && $2" < /dev/null
}

if [ -n "$4" ]; then
    be_host "$4" "$5"
    exit 1
fi
start_host alpha 10.0.0.1 && start_host beta 10.0.0.2 && lay_cable || { echo "[no hosts]"; exit 1; }
echo "[hosts]"
ends() { # NUMBER PROCESS
    wait "$2"
    grep -qs '^\[done\]$' "$FOLDER/$1.out" || exit 1
}
while read -r number host way <&3; do
    on "$host" ". '$FOLDER/$number.sh'" > "$FOLDER/$number.out" 2>&1 &
    if [ "$way" = meanwhile ]; then
        before=("$number" $!)
        continue
    fi
    ends "$number" $!
    [ "$way" = aside ] || [ -z "${before[*]}" ] && continue
    ends "${before[@]}"
    before=()
done 3< "$FOLDER/steps"
