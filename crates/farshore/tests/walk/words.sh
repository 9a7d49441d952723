# What the hidden steps of a walk say in one word. Situations, as a page begins with them on alpha, come first.

# GROUP [KEY=VALUE ...]: a configuration for volume `data`, and certificates. Small stores are made quickly.
configured() {
    local group=$1 key
    shift
    mkdir -p /etc/farshore
    farshore init --near alpha=10.0.0.1:/dev/vg0/data --far beta=10.0.0.2:/dev/vg0/data --out /etc/farshore/farshore.toml > /dev/null
    sed -i "s/^\[groups.main/[groups.$group/" /etc/farshore/farshore.toml
    for key in journal=16MiB window=4MiB "$@"; do set_key "$key"; done
    farshore cert init > /dev/null && farshore cert node alpha > /dev/null && farshore cert node beta > /dev/null && copy_to beta
}

# The same, and both daemons run.
served() {
    configured "$@" && ssh beta systemctl start farshore && systemctl start farshore
}

# The same, and the copy is in step.
replicating() {
    served "$@" || return
    # The nodes may not have met yet.
    for try in $(seq 50); do farshore sync "$1" --full --wait > /dev/null 2>&1 && break; sleep 0.1; done
    write 1M
    farshore wait "$1" --for replicating
}

# The same, and the group has a second volume, `log`.
two_volumes() {
    local node
    configured "$@" || return
    new_disk /dev/vg0/log && ssh beta bash -c ". '$WALK/words.sh'; new_disk /dev/vg0/log" || return
    {
        printf '\n[groups.%s.volumes.log]\n' "$1"
        for node in alpha beta; do printf '%s = "/dev/vg0/log"\n' "$node"; done
    } >> /etc/farshore/farshore.toml
    copy_to beta && ssh beta systemctl start farshore && systemctl start farshore || return
    for try in $(seq 50); do farshore sync "$1" --full --wait > /dev/null 2>&1 && break; sleep 0.1; done
    farshore wait "$1" --for replicating
}

# GROUP: alpha was lost, beta was promoted and wrote, and alpha is back.
failed_over() {
    write 2M
    systemctl kill farshore
    ssh beta farshore promote "$1" --force > /dev/null
    ssh beta bash -c ". '$WALK/words.sh'; write 1M"
    systemctl start farshore
    until_status 'both nodes are primary'
}

# Both hosts as they were before anybody heard of the product.
anew() {
    local host disk
    for host in alpha beta; do
        ssh $host systemctl stop farshore
        ssh $host rm -rf /etc/farshore /var/lib/farshore
        for disk in $(ssh $host find /dev/vg0 /dev/disk/by-id -type l); do
            ssh $host bash -c ". '$WALK/words.sh'; new_disk $disk"
        done
    done
}

# NODE: its host gets this host's configuration, and its certificates if they are here.
copy_to() {
    ssh "$1" mkdir -p /etc/farshore/tls/nodes
    (
        cd /etc/farshore || return
        tar -cp farshore.toml tls/ca.crt tls/nodes/"$1".* | ssh "$1" tar -C /etc/farshore -xp
    )
}

# KEY=VALUE: in the group's table of this host's configuration.
set_key() {
    sed -i "/^${1%%=*} = /d; s/^secondary = .*/&\n${1%%=*} = \"${1#*=}\"/" /etc/farshore/farshore.toml
}

# NODE LINE: in the node's table.
set_node() {
    sed -i "s|^\[nodes.$1\]|&\n$2|" /etc/farshore/farshore.toml
}

# NODE DEVICE: of the volume.
set_device() {
    sed -i "s|^$1 = \"/.*|$1 = \"$2\"|" /etc/farshore/farshore.toml
}

# DEVICE: another disk, blank, is found under the name.
new_disk() {
    local file
    file=$(mktemp "$WALK/$(hostname)/disks/XXXXXX") && truncate -s 64M "$file" && ln -sf "$file" "$1"
}

# DEVICE: it carries data.
filled() { seq 99999 | dd conv=notrunc status=none of="$1"; }

# SIZE: a client of the first export writes so much.
write() {
    local group
    group=$(farshore status --json --local | jq -r '.groups[0].name')
    qemu-io -f raw -c "write -P 7 0 $1" -c flush "nbd+unix:///$group/data?socket=/var/lib/farshore/nbd.sock" > /dev/null
}

# The same, and no flush reaches the daemon: the disk may lose it with its power, while the peer has it. The daemon flushes by itself 5 s after
# an earlier write, which is waited for: so nothing is flushed for the next 5 s.
write_unflushed() {
    sleep 5.5
    qemu-io -t unsafe -f raw -c "write -P 9 8M 64k" "nbd+unix:///$(farshore status --json --local | jq -r '.groups[0].name')/data?socket=/var/lib/farshore/nbd.sock" > /dev/null
}

# This host's machine loses its power, and is back: to the daemon it is another boot.
power_lost() {
    systemctl kill farshore
    FARSHORE_BOOT_ID=$RANDOM systemctl start farshore
    until_status 'lost power'
}

# The token that `farshore up` printed in a step that goes on.
token() {
    local found
    for try in $(seq 300); do
        found=$(sed -n 's/.*echo \(fj[^ ]*\) .*/\1/p' "$WALK"/*.out | tail -n 1)
        [ -n "$found" ] && echo "$found" && return
        sleep 0.1
    done
    return 1
}

# SENTENCE: until the status on this host has it.
until_status() {
    for try in $(seq 300); do farshore status --local 2>&1 | grep -q -- "$1" && return; sleep 0.1; done
    farshore status
    return 1
}

# The demotion of the peer is heard: that comes after the answer to whoever typed it. A person does not type so fast.
heard() {
    until farshore status --json --local | jq -e '.groups[0].peers[0].lag_bytes == null' > /dev/null; do sleep 0.1; done
}

# GROUP [--on NODE]: the name of the image that a sync keeps.
kept() { farshore mark list "$@" | grep -o 'before-sync-[0-9]*' | head -n 1; }

# START: a line of what the step before printed begins so.
printed() {
    local said=("$WALK"/*.out)
    grep -q -e "^$1" "${said[-2]}"
}

# Whether a host can write to nothing that is the machine's: to none of these places, to no disk, and to nothing that is mounted but the
# walk's folder and what was mounted for the host.
is_sealed() {
    local place
    for place in / /bin/sh /etc/passwd /home /root /usr /usr/local /usr/share /var /var/log /sys/kernel /proc/sys/kernel/panic "$PROGRAM" "$UNIT"; do
        if [ -w "$place" ]; then echo "$place can be written" && return 1; fi
    done
    [ -z "$(find -H /dev -type b)" ] || return
    awk -v folder="${WALK##*/}" '{ mounts[$5] = $0 } END { for (place in mounts) {
        split(mounts[place], field, " ")
        if (field[6] !~ /^rw/ || index(field[4], folder) || mounts[place] ~ / - (tmpfs|devpts) walk /) continue
        print place " can be written"
        found = 1
    } exit found }' /proc/self/mountinfo
}

# NUMBER CODE EXPECTED[/EXPECTED ...]: behind each command of a step.
ended() {
    echo "[ended $1 $2]"
    case /$3/ in */$2/*) ;; *) exit 1 ;; esac
}
