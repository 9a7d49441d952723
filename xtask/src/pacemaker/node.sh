#!/bin/sh
# The first process of a node: a host of a cluster with a supervised daemon, in namespaces of its own.
node=$1
mount -t proc proc /proc
mount -t tmpfs -o mode=755 run /run
mkdir -p /dev/shm /run/lock /run/resource-agents
mount -t tmpfs -o mode=1777 shm /dev/shm
hostname "$node"
ip link set lo up

# All boots are of one kernel: for the daemon each is another one, so whatever ended this node before was a loss of power.
FARSHORE_BOOT_ID=$(($(cat /boots 2> /dev/null || echo 0) + 1))
echo $FARSHORE_BOOT_ID > /boots
export FARSHORE_BOOT_ID

# As farshore.service does: a daemon that ends starts again after two seconds.
supervise() {
    while :; do
        farshore serve >> /var/log/farshore.log 2>&1
        sleep 2
        while [ -e /run/no-daemon ]; do sleep 0.2; done
    done
}
supervise &
while [ ! -e /run/cluster ]; do sleep 0.1; done
corosync -f > /var/log/corosync.log 2>&1 &
for try in $(seq 100); do corosync-quorumtool -s > /dev/null 2>&1; [ $? -le 1 ] && break; sleep 0.1; done
pacemakerd > /var/log/pacemakerd.log 2>&1 &
while :; do wait; sleep 1; done
