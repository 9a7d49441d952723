# A volume as a device of the kernel, on both nodes of a pair in one machine. Each check prints a line that xtask counts.
cd /trial
. /pair.sh
helper() { sed 's/.*"helper_pid":\([0-9]*\).*/\1/' /run/farshore/attached/g/data.json; }
attached() { readlink /dev/farshore/g/data; } # the kernel's name of the device

check "a kernel without NBD is named" ends_with 2 "this kernel has no NBD client" farshore attach g --node near
insmod /modules/nbd.ko
check "a secondary is not attached" ends_with 2 "is the secondary of g" farshore attach g --node far
check "no group, no device" ends_with 2 "no group" farshore attach h --node near
check "no volume, no device" ends_with 2 "its volumes are data" farshore attach g/log --node near
check "what is no device is named" ends_with 3 "is no device of the kernel's NBD" farshore attach g /dev/sda --node near
check "a kernel without ublk is named" ends_with 2 "this kernel has no ublk" farshore attach g --ublk --node near
check "a volume is attached" ends_with 0 "g/data is attached: /dev/farshore/g/data" farshore attach g --node near
check "attaching twice is success" ends_with 0 "nothing to do" farshore attach g --node near
check "it has one device" ends_with 2 "so not at /dev/nbd7" farshore attach g /dev/nbd7 --node near
check "a file system is made" mkfs.ext4 -q /dev/farshore/g/data
check "it is mounted" mount -t ext4 /dev/farshore/g/data /mnt
check "what is mounted is not detached" ends_with 2 "in use by the mount at /mnt" farshore detach g
check "what is attached is not demoted" ends_with 2 "client" farshore demote g --node near

# Writers that verify what they wrote, while the daemon is killed twenty times.
fio --name=v --filename=/mnt/f --size=32M --rw=randwrite --bs=4k --ioengine=psync --direct=1 --fsync=8 --verify=crc32c \
    --verify_backlog=256 --time_based --runtime=45 --write_lat_log=fio --log_avg_msec=0 --eta=never --output=fio.out &
FIO=$!
for round in $(seq 20); do
    sleep 1; kill -9 $NEAR; wait $NEAR 2>/dev/null
    [ $((round % 5)) = 0 ] && sleep 2
    near; answers near
done
wait $FIO; check "no write failed while the daemon was killed twenty times" test $? = 0
check "requests are answered" ends_with 0 "are answered" farshore attached
longest=$(awk -F, '$2 > m { m = $2 } END { printf "%.1f", m / 1e9 }' fio_clat.1.log)
away=$(sed -n 's/.*is back after \([0-9.]*\) s.*/\1/p' /run/farshore/attached/g/data.log | sort -n | tail -1)
echo "FIGURE longest write $longest s, longest outage $away s, $(wc -l < fio_clat.1.log) writes"

# The helper is killed: requests wait for the next one.
kill -9 $(helper); sleep 0.5
check "a device without helper is named" ends_with 1 "wait for a helper process" farshore attached
dd if=/dev/urandom of=/mnt/x bs=4k count=100 conv=fsync 2> /dev/null & DD=$!
sleep 1
check "another helper takes it over" farshore attach g --node near
wait $DD; check "what waited for a helper is written" test $? = 0

# A planned restart, and a stop of the helper while the device is in use.
kill $NEAR; wait $NEAR; dd if=/dev/urandom of=/mnt/y bs=4k count=100 conv=fsync 2> /dev/null & DD=$!
sleep 1; near; answers near
wait $DD; check "a planned restart costs nothing" test $? = 0
sum=$(cat /mnt/f /mnt/x /mnt/y | sha256sum)
check "it is unmounted" umount /mnt
check "it is detached" ends_with 0 "g/data is detached" farshore detach g
check "detaching twice is success" ends_with 0 "nothing to do" farshore detach g
check "its name is gone" test ! -e /dev/farshore/g/data

# The same verb on the other node after a switch of roles.
check "the copy is in step again" farshore wait g --for replicating --timeout 60s --node near
check "the old primary is demoted" farshore demote g --node near
check "the other one is promoted" farshore promote g --node far
check "the same verb attaches there" farshore attach g --node far
check "the copy is mounted" mount -t ext4 /dev/farshore/g/data /mnt
check "the copy has what was written" test "$(cat /mnt/f /mnt/x /mnt/y | sha256sum)" = "$sum"

# Clients are cut off for a demotion: nothing that waits may reach the volume later.
farshore wait g --for replicating --timeout 60s --node far > /dev/null
dd if=/dev/urandom of=/mnt/z bs=4k count=100 conv=fsync 2> /dev/null
check "a demotion cuts the device off" farshore demote g --close-clients --node far
began=$(now)
dd if=/dev/urandom of=/mnt/z bs=4k count=100 conv=fsync 2> /dev/null
check "its requests fail, and are not waited for" test $(awk "BEGIN { print $(now) - $began < 60 }") = 1
check "it says why" ends_with 1 "became the secondary of g" farshore attached
umount /mnt; check "it is detached all the same" farshore detach g
# The helper is gone while both nodes are primary in turn: what waits in the kernel was meant for other content.
check "the first node is primary again" farshore promote g --node near
check "it is attached again" farshore attach g --node near
check "and mounted" mount -t ext4 /dev/farshore/g/data /mnt
# The other node's content does not change what is mounted here.
farshore logging g --node near
dd if=/dev/urandom of=/mnt/z bs=4k count=100 conv=fsync 2> /dev/null
check "a reverse sync under a mount is refused" ends_with 2 "1 client is attached" farshore sync g --reverse --yes --node near
check "the mount goes on" dd if=/dev/urandom of=/mnt/z bs=4k count=100 conv=fsync
check "and so does the copy" farshore sync g --wait --node near
kill -9 $(helper)
farshore demote g --node near && farshore promote g --node far && farshore demote g --node far && farshore promote g --node near
check "a device of an older history is not taken over" ends_with 2 "is of no more use" farshore attach g --node near
check "it is not detached while it is mounted" ends_with 2 "in use by the mount" farshore detach g
check "it is detached by force" ends_with 0 "is detached" farshore detach g --force
umount /mnt
check "the volume is attached anew" farshore attach g --node near
check "and detached" farshore detach g

# The helper is killed while it is told to detach: somebody has to take the device away.
check "it is attached for a detach that goes wrong" farshore attach g --node near
device=$(attached); dd if=$device of=/dev/null bs=4k count=1 2> /dev/null
HELPER=$(helper); kill -STOP $HELPER
farshore detach g > detach.out 2>&1 & DETACH=$!
sleep 2; kill -9 $HELPER
wait $DETACH; check "a detach outlives its helper" test $? = 0
check "it leaves no device" test ! -e /sys/block/${device#/dev/}/pid
check "and no record" ends_with 0 "no volume is attached" farshore attached

# Two at once, with a helper and without: neither takes the other for somebody who uses the device, or kills it.
codes=
for round in 1 2 3 4; do
    farshore attach g --node near > /dev/null
    if [ $((round % 2)) = 0 ]; then kill -9 $(helper); sleep 0.5; fi
    farshore detach g > one.out 2>&1 & ONE=$!
    farshore detach g > two.out 2>&1 & TWO=$!
    wait $ONE; codes=$codes$?; wait $TWO; codes=$codes$?
    cat one.out two.out
done
check "two detach at once both end well" test $codes = 00000000
check "nothing is left of them" ends_with 0 "no volume is attached" farshore attached

# The helper is killed between the kernel's device and the end of the attachment: it waits for a node that is not there.
free=0; while [ -e /sys/block/nbd$free/pid ]; do free=$((free + 1)); done
rm /dev/nbd$free
farshore attach g --node near > attach.out 2>&1 & ATTACH=$!
for try in $(seq 200); do [ -e /sys/block/nbd$free/pid ] && break; sleep 0.05; done
kill -9 $(cat /sys/block/nbd$free/pid); wait $ATTACH
mknod /dev/nbd$free b $(tr : ' ' < /sys/block/nbd$free/dev)
check "a device is on record before it is there" ends_with 1 "/dev/nbd$free" farshore attached
check "the next attach takes it" ends_with 0 "g/data is attached" farshore attach g --node near
check "and makes no other" test "$(attached)" = /dev/nbd$free

# A machine at its limit of tasks, while the daemon is away.
mkdir /cgroup && mount -t cgroup2 none /cgroup && echo +pids > /cgroup/cgroup.subtree_control && mkdir /cgroup/helper
HELPER=$(helper); echo $HELPER > /cgroup/helper/cgroup.procs; echo 1 > /cgroup/helper/pids.max
kill -9 $NEAR; wait $NEAR 2> /dev/null
dd if=$(attached) of=/dev/null bs=4k skip=999 count=1 2> /dev/null & DD=$!
near; answers near; sleep 2
check "a helper that may start no thread lives" kill -0 $HELPER
check "and waits" ends_with 1 "wait for the daemon" farshore attached
echo max > /cgroup/helper/pids.max
wait $DD; check "it answers once it may" test $? = 0
check "and is detached" farshore detach g

# A mount that comes while the device goes: one of the two wins, and none of them half.
lost=0
for delay in 0 5000 10000 20000 40000 80000; do
    farshore attach g --node near > /dev/null
    device=$(attached); kill $(helper); usleep $delay
    if mount -t ext4 $device /mnt 2> /dev/null; then
        sleep 1; dd if=/dev/zero of=/mnt/raced bs=4k count=1 conv=fsync 2> /dev/null || lost=$((lost + 1))
        umount /mnt
    fi
    farshore detach g > /dev/null
done
check "no mount loses its device to a detach" test $lost = 0
check "nothing is attached then" ends_with 0 "no volume is attached" farshore attached

# What the OCF agent does with a device. There is no cluster here: its functions are those of functions.sh.
agent() { # the code wanted, and the action
    OCF_FUNCTIONS_DIR=/ocf HA_RSCTMP=/run OCF_RESKEY_group=g OCF_RESKEY_binary=/bin/farshore OCF_RESKEY_socket=/trial/near/control.sock \
        OCF_RESKEY_attach=true OCF_RESKEY_patience=10 sh /ocf/farshore "$2"
    code=$?
    echo "exit code $code"
    [ $code = "$1" ]
}
farshore wait g --for replicating --timeout 30s --node near > /dev/null
check "the agent starts" agent 0 start
check "it promotes, and attaches" agent 0 promote
check "it sees a primary" agent 8 monitor
check "the device is there" mount -t ext4 /dev/farshore/g/data /mnt
kill -9 $(helper); sleep 0.5
check "a device without helper gets one" agent 8 monitor
check "a demotion is refused while the device is mounted" agent 1 demote
check "this node is primary as before" agent 8 monitor
umount /mnt
check "it detaches, and demotes" agent 0 demote
check "nothing is attached" ends_with 0 "no volume is attached" farshore attached
check "it sees a copy" agent 0 monitor
check "it stops" agent 0 stop
check "it sees that it does not run" agent 7 monitor
kill $NEAR $FAR; wait $NEAR; wait $FAR
check "the copies are equal" cmp near.img far.img
