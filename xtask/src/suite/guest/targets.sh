# A volume on which the kernel's targets stand: LIO (here by its loopback fabric) and nvmet over TCP. Each check prints a line that xtask counts.
cd /trial
. /pair.sh

for module in $(cat /modules/targets); do insmod "/modules/$module.ko" || echo "the module $module is not loaded"; done
mount -t configfs configfs /sys/kernel/config
insmod /modules/nbd.ko
check "a volume is attached" ends_with 0 "is attached" farshore attach g --node near
device=$(readlink -f /dev/farshore/g/data)

# LIO, as docs/book/operate/iscsi-nvmeof.md has it; tcm_loop stands for the iSCSI fabric.
core=/sys/kernel/config/target/core/iblock_0/data
mkdir -p $core
echo "udev_path=$device" > $core/control
check "LIO takes the device" sh -c "echo 1 > $core/enable"
echo farshore-g-data > $core/wwn/vpd_unit_serial
check "its serial number is the volume's" grep -q farshore-g-data $core/wwn/vpd_unit_serial
loop=/sys/kernel/config/target/loopback/naa.6001405000000001/tpgt_1
mkdir -p $loop/lun/lun_0
echo naa.6001405000000002 > $loop/nexus
ln -s $core $loop/lun/lun_0/data
for try in $(seq 50); do disk=$(ls /sys/class/block | grep '^sd' | head -1); [ -n "$disk" ] && break; sleep 0.2; done
check "an initiator sees a disk" test -b "/dev/$disk"
check "it sends flushes" grep -q "write back" /sys/class/scsi_disk/*/cache_type
check "as large as the volume" test "$(cat /sys/class/block/$disk/size)" = 524288

while_killed() { # a device: what is written while the daemon is killed arrives. A check runs in a shell of its own, so the pid is in a file.
    dd if=/dev/urandom of=/trial/wanted bs=64k count=160 2> /dev/null
    dd if=/trial/wanted of=$1 bs=64k oflag=direct conv=fsync 2> /dev/null & DD=$!
    sleep 0.3; kill -9 $(cat near.pid) || return 1
    sleep 2; near; answers near
    wait $DD || return 1
    echo 3 > /proc/sys/vm/drop_caches
    cmp -n 10485760 /trial/wanted $1
}
check "writes through LIO outlive a killed daemon" while_killed /dev/$disk
check "a device under LIO is not detached" ends_with 2 "in use" farshore detach g
rm $loop/lun/lun_0/data; rmdir $loop/lun/lun_0 $loop; rmdir ${loop%/tpgt_1}
rmdir $core
check "after LIO has let go it is" farshore detach g

# nvmet over TCP, and an initiator on the same host.
check "the volume is attached again" ends_with 0 "is attached" farshore attach g --node near
device=$(readlink -f /dev/farshore/g/data)
nvmet=/sys/kernel/config/nvmet
name=nqn.2026-01.example.farshore:g
mkdir $nvmet/subsystems/$name
echo 1 > $nvmet/subsystems/$name/attr_allow_any_host
mkdir $nvmet/subsystems/$name/namespaces/1
echo -n "$device" > $nvmet/subsystems/$name/namespaces/1/device_path
echo 8c0d1f7e-0000-4000-8000-000000000001 > $nvmet/subsystems/$name/namespaces/1/device_uuid
check "nvmet takes the device" sh -c "echo 1 > $nvmet/subsystems/$name/namespaces/1/enable"
mkdir $nvmet/ports/1
echo tcp > $nvmet/ports/1/addr_trtype; echo ipv4 > $nvmet/ports/1/addr_adrfam
echo 127.0.0.1 > $nvmet/ports/1/addr_traddr; echo 4420 > $nvmet/ports/1/addr_trsvcid
ln -s $nvmet/subsystems/$name $nvmet/ports/1/subsystems/$name
check "an initiator connects" sh -c "echo 'transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=$name' > /dev/nvme-fabrics"
for try in $(seq 50); do disk=$(ls /sys/class/block | grep '^nvme[0-9]*n1$' | head -1); [ -n "$disk" ] && break; sleep 0.2; done
check "it sees a disk" test -b "/dev/$disk"
check "and sends flushes" grep -q "write back" /sys/class/block/$disk/queue/write_cache
check "writes through nvmet outlive a killed daemon" while_killed /dev/$disk
echo 1 > /sys/class/nvme/nvme0/delete_controller
rm $nvmet/ports/1/subsystems/$name
echo 0 > $nvmet/subsystems/$name/namespaces/1/enable
check "after nvmet has let go the device is detached" farshore detach g
farshore wait g --for replicating --timeout 30s --node near > /dev/null
NEAR=$(cat near.pid)
kill $NEAR $FAR; wait $FAR
while kill -0 $NEAR 2> /dev/null; do sleep 0.2; done
check "the copies are equal" cmp near.img far.img
