//! What the servers are asked.

/// What throughput is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Iops,
    /// 10^6 bytes per second.
    Megabytes,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Iops => "IOPS",
            Unit::Megabytes => "MB/s",
        }
    }
}

pub struct BenchWorkload {
    pub name: &'static str,
    pub unit: Unit,
    /// What fio is told besides server and time.
    pub fio: &'static [&'static str],
}

pub const WORKLOADS: &[BenchWorkload] = &[
    small("randread-4k-qd1", &["--rw=randread", "--bs=4k", "--iodepth=1"]),
    small("randread-4k-qd32", &["--rw=randread", "--bs=4k", "--iodepth=32"]),
    small("randwrite-4k-qd1", &["--rw=randwrite", "--bs=4k", "--iodepth=1"]),
    small("randwrite-4k-qd32", &["--rw=randwrite", "--bs=4k", "--iodepth=32"]),
    small("mixed-70-30-4k-qd32", &["--rw=randrw", "--rwmixread=70", "--bs=4k", "--iodepth=32"]),
    small("flush-each-4k-qd1", &["--rw=randwrite", "--bs=4k", "--iodepth=1", "--fsync=1"]),
    large("read-1m-qd4", &["--rw=read", "--bs=1m", "--iodepth=4"]),
    large("write-1m-qd4", &["--rw=write", "--bs=1m", "--iodepth=4"]),
];

const fn small(name: &'static str, fio: &'static [&'static str]) -> BenchWorkload {
    BenchWorkload { name, unit: Unit::Iops, fio }
}

const fn large(name: &'static str, fio: &'static [&'static str]) -> BenchWorkload {
    BenchWorkload { name, unit: Unit::Megabytes, fio }
}
