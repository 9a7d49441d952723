# A pair on this host, a guest whose disk is its volume, and a daemon that is killed five times and stopped twice while the guest writes. Runs in
# namespaces of its own.
farshore=$1 kernel=$2 initial=$3 work=$4
rm -rf "$work"; mkdir -p "$work/near" "$work/far"; cd "$work" || exit 1
chmod 700 near far
ip link set lo up
(umask 077; head -c 32 /dev/urandom | base64 > secret)
for node in near far; do truncate -s 256M $node.img; done
cat > farshore.toml <<END
cluster = "guest"
secret_file = "$work/secret"
[nodes.near]
address = "127.0.0.1:7001"
state = "$work/near"
[nodes.far]
address = "127.0.0.1:7002"
state = "$work/far"
[groups.g]
primary = "near"
secondary = "far"
mode = "async"
journal = "128MiB"
queue.disk = 0
history = "512MiB"
[groups.g.volumes.data]
near = "$work/near.img"
far = "$work/far.img"
END
export FARSHORE_CONFIG=$work/farshore.toml
serve() { "$farshore" serve --node near >> near.log 2>&1 & near=$!; }
serve
"$farshore" serve --node far >> far.log 2>&1 & far=$!
for try in $(seq 50); do "$farshore" sync g --full --wait --node near > /dev/null 2>&1 && break; sleep 0.2; done
# The options are those of docs/book/operate/libvirt.md.
timeout 300 qemu-system-x86_64 -accel tcg -smp 1 -m 1024 -nographic -no-reboot -nic none -kernel "$kernel" -initrd "$initial" \
    -append "console=ttyS0 panic=-1 quiet scenario=disk" \
    -blockdev "driver=nbd,node-name=nbd0,server.type=unix,server.path=$work/near/nbd.sock,export=g/data,reconnect-delay=300,cache.direct=on" \
    -blockdev driver=raw,node-name=disk0,file=nbd0,discard=unmap -device virtio-blk-pci,drive=disk0 < /dev/null > console 2>&1 & qemu=$!
for try in $(seq 1200); do grep -q "GUEST WRITES" console && break; sleep 0.1; done
for round in 1 2 3 4 5 6 7; do
    sleep 2
    case $round in 3|6) kill $near ;; *) kill -9 $near ;; esac
    wait $near 2> /dev/null
    sleep 1
    serve
done
wait $qemu
tr -d '\0' < console
for try in $(seq 100); do "$farshore" status g --node near > /dev/null 2>&1; [ $? -lt 2 ] && break; sleep 0.1; done
"$farshore" wait g --for replicating --timeout 60s --node near
kill $near $far; wait $near; wait $far
if cmp near.img far.img; then echo "CHECK ok: the copies are equal"; else echo "CHECK FAILED: the copies are equal"; fi
