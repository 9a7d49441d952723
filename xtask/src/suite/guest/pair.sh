# What the scenarios begin with: a pair of nodes in one machine.
. /check.sh
now() { cut -d' ' -f1 /proc/uptime; }
near() { farshore serve --node near >> near.log 2>&1 & NEAR=$!; echo $NEAR > near.pid; }
far() { farshore serve --node far >> far.log 2>&1 & FAR=$!; }
answers() { # until the daemon of a node does
    for try in $(seq 100); do farshore status --node "$1" > /dev/null 2>&1; [ $? -lt 2 ] && return; sleep 0.1; done
    return 1
}

mkdir -m 700 near far
(umask 077; head -c 32 /dev/urandom | base64 > secret)
for node in near far; do truncate -s 256M $node.img; done
cat > farshore.toml <<END
cluster = "guest"
secret_file = "/trial/secret"
[nodes.near]
address = "127.0.0.1:7001"
state = "/trial/near"
[nodes.far]
address = "127.0.0.1:7002"
state = "/trial/far"
[groups.g]
primary = "near"
secondary = "far"
mode = "async"
journal = "128MiB"
queue.disk = 0
history = "320MiB"
[groups.g.volumes.data]
near = "/trial/near.img"
far = "/trial/far.img"
END
export FARSHORE_CONFIG=/trial/farshore.toml
near; far; answers near; answers far
for try in $(seq 50); do farshore sync g --full --wait --node near > /dev/null 2>&1 && break; sleep 0.2; done
check "the pair is in step" farshore wait g --for replicating --timeout 30s --node near
