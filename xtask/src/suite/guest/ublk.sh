# A volume as a device of ublk, and of the NBD that newer kernels have, on both nodes of a pair in one machine. Each check prints a line that
# xtask counts.
cd /trial
. /pair.sh
helper() { sed 's/.*"helper_pid":\([0-9]*\).*/\1/' /run/farshore/attached/g/data.json; }
attached() { readlink /dev/farshore/g/data; } # the kernel's name of the device
kill_helper() { # and wait until it is gone: as long as it holds its lock, nobody else is let in
    HELPER=$(helper); kill -9 $HELPER
    for try in $(seq 100); do grep -q "FLOCK.*WRITE $HELPER " /proc/locks || return 0; sleep 0.1; done
}
some_bytes() { dd if=/dev/urandom "of=$1" bs=4k count=100 conv=fsync 2> /dev/null; }

check "a kernel without ublk is named" ends_with 2 "this kernel has no ublk" farshore attach g --ublk --node near
insmod /modules/ublk_drv.ko
check "what is no device of ublk is named" ends_with 3 "is no device of ublk" farshore attach g /dev/nbd0 --ublk --node near
check "a secondary is not attached" ends_with 2 "is the secondary of g" farshore attach g --ublk --node far
check "a volume is attached by ublk" \
    ends_with 0 "g/data is attached: /dev/farshore/g/data (/dev/ublkb0)" farshore attach g --ublk --node near
check "attaching twice is success" ends_with 0 "nothing to do" farshore attach g --ublk --node near
check "also without saying how" ends_with 0 "nothing to do" farshore attach g --node near
check "it has one device" ends_with 2 "so not at /dev/ublkb7" farshore attach g /dev/ublkb7 --ublk --node near
check "its record says of what kind it is" ends_with 0 '"kind":"ublk"' farshore attached --json
check "it is as large as the volume" test "$(cat /sys/block/ublkb0/size)" = 524288
check "it sends flushes" grep -q "write back" /sys/block/ublkb0/queue/write_cache
check "it sends forced writes" test "$(cat /sys/block/ublkb0/queue/fua)" = 1
check "a file system is made" mkfs.ext4 -q /dev/farshore/g/data
check "it is mounted" mount -t ext4 /dev/farshore/g/data /mnt
check "what is mounted is not detached" ends_with 2 "in use by the mount at /mnt" farshore detach g
check "what is attached is not demoted" ends_with 2 "client" farshore demote g --node near

# Writers that verify what they wrote, while the daemon is killed five times.
fio --name=v --filename=/mnt/f --size=16M --rw=randwrite --bs=4k --ioengine=psync --direct=1 --fsync=8 --verify=crc32c \
    --verify_backlog=256 --time_based --runtime=15 --write_lat_log=fio --log_avg_msec=0 --eta=never --output=fio.out &
FIO=$!
for round in $(seq 5); do
    sleep 1; kill -9 $NEAR; wait $NEAR 2> /dev/null
    [ $round = 3 ] && sleep 2
    near; answers near
done
wait $FIO; check "no write failed while the daemon was killed five times" test $? = 0
check "requests are answered" ends_with 0 "are answered" farshore attached
longest=$(awk -F, '$2 > m { m = $2 } END { printf "%.1f", m / 1e9 }' fio_clat.1.log)
away=$(sed -n 's/.*is back after \([0-9.]*\) s.*/\1/p' /run/farshore/attached/g/data.log | sort -n | tail -1)
echo "FIGURE ublk: longest write $longest s, longest outage $away s, $(wc -l < fio_clat.1.log) writes"
check "unused space is trimmed" fstrim /mnt

# The helper is killed: requests wait for the next one, which need not be told of what kind the device is.
kill_helper
check "a device without helper is named" ends_with 1 "wait for a helper process: " farshore attached
some_bytes /mnt/x & DD=$!
sleep 1
check "another helper takes it over" ends_with 0 "(/dev/ublkb0)" farshore attach g --node near
wait $DD; check "what waited for a helper is written" test $? = 0
# The same while much is under way.
dd if=/dev/urandom of=wanted bs=64k count=320 2> /dev/null
dd if=wanted of=/mnt/y bs=64k conv=fsync 2> /dev/null & DD=$!
sleep 0.5; kill_helper
check "a helper takes over in the midst of writes" ends_with 0 "(/dev/ublkb0)" farshore attach g --ublk --node near
wait $DD; check "no write fails by that" test $? = 0
echo 3 > /proc/sys/vm/drop_caches
check "and nothing is lost" cmp wanted /mnt/y
# The daemon and the helper, one after the other.
kill -9 $NEAR; wait $NEAR 2> /dev/null
some_bytes /mnt/z & DD=$!
sleep 0.5; kill_helper; near; answers near
check "a helper takes over what waits for the daemon" farshore attach g --node near
wait $DD; check "that costs nothing either" test $? = 0

sum=$(cat /mnt/f /mnt/x /mnt/y /mnt/z | sha256sum)
check "it is unmounted" umount /mnt
check "it is detached" ends_with 0 "g/data is detached" farshore detach g
check "detaching twice is success" ends_with 0 "nothing to do" farshore detach g
check "nothing is left of it" test ! -e /dev/farshore/g/data -a ! -e /dev/ublkb0 -a ! -e /dev/ublkc0

# The same verb on the other node after a switch of roles.
check "the copy is in step again" farshore wait g --for replicating --timeout 60s --node near
check "the old primary is demoted" farshore demote g --node near
check "the other one is promoted" farshore promote g --node far
check "the same verb attaches there" farshore attach g --ublk --node far
check "the copy is mounted" mount -t ext4 /dev/farshore/g/data /mnt
check "the copy has what was written" test "$(cat /mnt/f /mnt/x /mnt/y /mnt/z | sha256sum)" = "$sum"

# Clients are cut off for a demotion: nothing that waits may reach the volume later.
farshore wait g --for replicating --timeout 60s --node far > /dev/null
some_bytes /mnt/cut
check "a demotion cuts the device off" farshore demote g --close-clients --node far
began=$(now)
some_bytes /mnt/cut
check "its requests fail, and are not waited for" test $(awk "BEGIN { print $(now) - $began < 60 }") = 1
check "it says why" ends_with 1 "became the secondary of g" farshore attached
umount /mnt; check "it is detached all the same" farshore detach g

# The helper is gone while both nodes are primary in turn: what waits in the kernel was meant for other content.
check "the first node is primary again" farshore promote g --node near
check "it is attached again" farshore attach g --ublk --node near
check "and mounted" mount -t ext4 /dev/farshore/g/data /mnt
kill_helper
farshore demote g --node near && farshore promote g --node far && farshore demote g --node far && farshore promote g --node near
check "a device of an older history is not taken over" ends_with 2 "is of no more use" farshore attach g --node near
check "it is not detached while it is mounted" ends_with 2 "in use by the mount" farshore detach g
check "it is detached by force" ends_with 0 "is detached" farshore detach g --force
umount /mnt

# The helper is killed while it is told to detach: somebody has to take the device away.
# Two commands attach it at once: the slower one waits for what the other one makes.
farshore attach g --ublk --node near > other.out 2>&1 & OTHER=$!
check "it is attached for a detach that goes wrong" farshore attach g --ublk --node near
wait $OTHER; check "by two commands at once" test $? = 0
device=$(attached); dd if=$device of=/dev/null bs=4k count=1 2> /dev/null
HELPER=$(helper); kill -STOP $HELPER
farshore detach g > detach.out 2>&1 & DETACH=$!
sleep 2; kill -9 $HELPER
wait $DETACH; check "a detach outlives its helper" test $? = 0
check "it leaves no device" test ! -e /sys/block/${device#/dev/}
check "and no record" ends_with 0 "no volume is attached" farshore attached

# The index of a device that is gone is free.
names=
for round in 1 2 3; do
    farshore attach g --ublk --node near > /dev/null; names=$names$(attached); farshore detach g > /dev/null
done
check "it is used again" test $names = /dev/ublkb0/dev/ublkb0/dev/ublkb0

# The kernel's NBD of this release.
insmod /modules/nbd.ko
check "the kernel's NBD attaches" ends_with 0 "(/dev/nbd0)" farshore attach g --node near
check "it is not ublk's" ends_with 2 "so not at a ublk device" farshore attach g --ublk --node near
check "the volume is mounted by NBD" mount -t ext4 /dev/farshore/g/data /mnt
kill_helper
some_bytes /mnt/n & DD=$!
sleep 0.5
check "NBD's device is taken over" farshore attach g --node near
wait $DD; check "that costs no write" test $? = 0
check "it is unmounted again" umount /mnt
check "and detached" ends_with 0 "g/data is detached" farshore detach g
check "the pair is in step at the end" farshore wait g --for replicating --timeout 60s --node near
kill $NEAR $FAR; wait $NEAR; wait $FAR
check "the copies are equal" cmp near.img far.img
