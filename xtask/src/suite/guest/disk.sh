# The disk of this guest is a volume: qemu's own NBD client stands between, told to wait for a daemon that is away. The host kills the daemon.
. /check.sh
for module in $(cat /modules/disk); do insmod "/modules/$module.ko" || echo "the module $module is not loaded"; done
for try in $(seq 50); do [ -b /dev/vda ] && break; sleep 0.2; done
check "the guest has a disk" test -b /dev/vda
check "a file system is made" mkfs.ext4 -q /dev/vda
check "it is mounted" mount -t ext4 /dev/vda /mnt
echo "GUEST WRITES"
fio --name=v --filename=/mnt/f --size=32M --rw=randwrite --bs=4k --ioengine=psync --direct=1 --fsync=8 --verify=crc32c \
    --verify_backlog=256 --time_based --runtime=30 --write_lat_log=/fio --log_avg_msec=0 --eta=never --output=/fio.out
check "no write failed while the daemon was killed and restarted" test $? = 0
echo "FIGURE longest write $(awk -F, '$2 > m { m = $2 } END { printf "%.1f", m / 1e9 }' /fio_clat.1.log) s, $(wc -l < /fio_clat.1.log) writes"
check "it is unmounted" umount /mnt
