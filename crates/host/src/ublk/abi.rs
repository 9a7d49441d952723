//! What the kernel's driver and its server say to each other (linux/ublk_cmd.h): numbers, and structures byte for byte.

use std::mem::{offset_of, size_of};

use crate::nbd::kernel::KernelDevice;
use crate::nbd::proto::transmission;

/// Bytes of a sector, whatever the device's block is.
pub(super) const SECTOR_BYTES: u32 = 512;

/// Bytes that come with an order to the control device, and with one for a request.
pub(super) const CONTROL_BYTES: usize = 32;
pub(super) const REQUEST_COMMAND_BYTES: usize = 16;

/// The number of an order, made as those of ioctls: which way its bytes go, how many, whose order it is, and which.
const fn number(direction: u32, bytes: usize, order: u32) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | order
}

const fn asks(order: u32) -> u32 {
    number(2, CONTROL_BYTES, order)
}

const fn tells(order: u32) -> u32 {
    number(3, CONTROL_BYTES, order)
}

/// Orders to the control device.
pub(super) mod order {
    use super::{asks, tells};

    pub const INFO: u32 = asks(0x02);
    pub const ADD: u32 = tells(0x04);
    pub const DELETE: u32 = tells(0x05);
    pub const START: u32 = tells(0x06);
    pub const STOP: u32 = tells(0x07);
    pub const SET_PARAMETERS: u32 = tells(0x08);
    pub const BEGIN_RECOVERY: u32 = tells(0x10);
    pub const END_RECOVERY: u32 = tells(0x11);
    /// Linux 6.5.
    pub const FEATURES: u32 = asks(0x13);
    /// Linux 6.9.
    pub const DELETE_LATER: u32 = asks(0x14);
    /// Linux 6.16.
    pub const RESIZE: u32 = tells(0x15);
}

/// Orders for one request: give me the first, and: this is what became of it, give me the next.
pub(super) const FETCH: u32 = number(3, REQUEST_COMMAND_BYTES, 0x20);
pub(super) const COMMIT_AND_FETCH: u32 = number(3, REQUEST_COMMAND_BYTES, 0x21);
/// How an order for a request ends when there will be no more requests.
pub(super) const NO_MORE: i32 = -libc::ENODEV;

/// What a kernel can do, and what a device is to do.
pub(super) mod feature {
    /// A device outlives its server.
    pub const RECOVERY: u64 = 1 << 3;
    /// What a server had not answered is asked of the next.
    pub const REISSUE: u64 = 1 << 4;
    /// Orders have the numbers that are used here.
    pub const ENCODED: u64 = 1 << 6;
    pub const ALL: u64 = RECOVERY | REISSUE | ENCODED;
}

/// A device that was added, and not started or stopped.
const STATE_DEAD: u16 = 0;

/// A device as its driver knows it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) padding: u16,
    pub(super) request_bytes_max: u32,
    pub(super) index: u32,
    pub(super) server: i32,
    pub(super) padding_2: u32,
    pub(super) flags: u64,
    /// The kernel keeps it for the server, and does not look at it.
    pub(super) mark: u64,
    pub(super) owner: u32,
    pub(super) group: u32,
    pub(super) reserved: [u64; 2],
}

const _: () = assert!(size_of::<DeviceInfo>() == 64);
const _: () = assert!(offset_of!(DeviceInfo, request_bytes_max) == 8 && offset_of!(DeviceInfo, index) == 12);
const _: () = assert!(offset_of!(DeviceInfo, flags) == 24 && offset_of!(DeviceInfo, mark) == 32);

impl DeviceInfo {
    /// Whether it was made for this backend.
    pub fn is_of(&self, backend: &str) -> bool {
        self.mark == mark(backend)
    }

    /// `false`: there is no disk yet, or no more. One that was stopped must not be started again.
    pub fn is_started(&self) -> bool {
        self.state != STATE_DEAD
    }
}

/// Whose a device is, in as many bytes as the kernel keeps.
pub(super) fn mark(backend: &str) -> u64 {
    let hash = blake3::hash(backend.as_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
}

mod attribute {
    pub const READ_ONLY: u32 = 1;
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    pub const FUA: u32 = 1 << 3;
}

const BASIC: u32 = 1;
const DISCARD: u32 = 1 << 1;

/// How a device is to be: as much of the kernel's structure as is used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    length: u32,
    kinds: u32,
    attributes: u32,
    logical_block_shift: u8,
    physical_block_shift: u8,
    optimal_shift: u8,
    minimal_shift: u8,
    request_sectors_max: u32,
    chunk_sectors: u32,
    sectors: u64,
    boundary_mask: u64,
    discard_alignment: u32,
    discard_granularity: u32,
    discard_sectors_max: u32,
    zero_sectors_max: u32,
    discard_segments: u16,
    reserved: u16,
    /// Not the kernel's, and not among the bytes that it is told of.
    end: u32,
}

const _: () = assert!(size_of::<Parameters>() == 64 && offset_of!(Parameters, end) == 60);
const _: () = assert!(offset_of!(Parameters, attributes) == 8 && offset_of!(Parameters, request_sectors_max) == 16);
const _: () = assert!(offset_of!(Parameters, sectors) == 24 && offset_of!(Parameters, discard_alignment) == 40);
const _: () = assert!(offset_of!(Parameters, zero_sectors_max) == 52 && offset_of!(Parameters, discard_segments) == 56);

impl Parameters {
    /// The same as the kernel's NBD client makes of these.
    pub(super) fn of(device: &KernelDevice) -> Parameters {
        let shift = device.block_bytes.trailing_zeros() as u8;
        let can = |flag| device.flags & flag != 0;
        let set = |condition, bits| if condition { bits } else { 0 };
        let caches = can(transmission::SEND_FLUSH);
        // In bytes it has to fit into 32 bits: before Linux 6.11 more of it is lost without a word.
        let range = (u32::MAX / SECTOR_BYTES) & !(device.block_bytes / SECTOR_BYTES - 1);
        let (discards, zeroes) = (can(transmission::SEND_TRIM), can(transmission::SEND_WRITE_ZEROES));
        Parameters {
            length: offset_of!(Parameters, end) as u32,
            kinds: BASIC | set(discards || zeroes, DISCARD),
            attributes: set(can(transmission::READ_ONLY), attribute::READ_ONLY)
                | set(caches, attribute::VOLATILE_CACHE)
                | set(caches && can(transmission::SEND_FUA), attribute::FUA),
            logical_block_shift: shift,
            physical_block_shift: shift,
            optimal_shift: shift,
            minimal_shift: shift,
            request_sectors_max: super::REQUEST_BYTES_MAX / SECTOR_BYTES,
            sectors: device.size_bytes / u64::from(SECTOR_BYTES),
            discard_granularity: device.block_bytes,
            discard_sectors_max: set(discards, range),
            zero_sectors_max: set(zeroes, range),
            discard_segments: 1,
            ..Parameters::default()
        }
    }
}

/// What a request is, and what it asks for. The lowest byte is one of [`operation`], the others are flags.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub operation: u32,
    pub sectors: u32,
    pub first_sector: u64,
    pub address: u64,
}

const _: () = assert!(size_of::<Descriptor>() == 24 && offset_of!(Descriptor, first_sector) == 8);

pub(super) mod operation {
    pub const MASK: u32 = 0xff;
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 2;
    pub const DISCARD: u32 = 3;
    pub const WRITE_ZEROES: u32 = 5;
    pub const FUA: u32 = 1 << 13;
    /// Zeroes that keep their space.
    pub const KEEP_SPACE: u32 = 1 << 15;
}

/// An order to the control device, as a submission has it. `argument`: a process, or a size, where the order wants one.
pub(super) fn control_command(index: u32, argument: u64, address: u64, length: usize) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[..4].copy_from_slice(&index.to_ne_bytes());
    // Of no queue alone.
    bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(length as u16).to_ne_bytes());
    bytes[8..16].copy_from_slice(&address.to_ne_bytes());
    bytes[16..24].copy_from_slice(&argument.to_ne_bytes());
    bytes
}

/// An order for a request of the only queue. `address`: memory for the next request's bytes.
pub(super) fn request_command(tag: u16, result: i32, address: u64) -> [u8; REQUEST_COMMAND_BYTES] {
    let mut bytes = [0; REQUEST_COMMAND_BYTES];
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes[8..].copy_from_slice(&address.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(flags: u16, block_bytes: u32) -> KernelDevice {
        let backend = "farshore /s db/data".to_owned();
        KernelDevice { size_bytes: 1 << 28, block_bytes, flags, dead_timeout: std::time::Duration::ZERO, backend }
    }

    /// As the kernel's documentation has them.
    #[test]
    fn orders_have_the_kernels_numbers() {
        assert_eq!(
            (order::ADD, order::DELETE, order::START, order::STOP),
            (0xc020_7504, 0xc020_7505, 0xc020_7506, 0xc020_7507)
        );
        assert_eq!((order::INFO, order::SET_PARAMETERS), (0x8020_7502, 0xc020_7508));
        assert_eq!((order::BEGIN_RECOVERY, order::END_RECOVERY), (0xc020_7510, 0xc020_7511));
        assert_eq!((order::FEATURES, order::DELETE_LATER, order::RESIZE), (0x8020_7513, 0x8020_7514, 0xc020_7515));
        assert_eq!((FETCH, COMMIT_AND_FETCH, NO_MORE), (0xc010_7520, 0xc010_7521, -19));
    }

    #[test]
    fn commands_have_their_parts_where_the_kernel_looks() {
        let command = control_command(7, 0x0102, 0x1000, 64);
        assert_eq!(command[..8], [&7_u32.to_ne_bytes()[..], &[0xff; 2], &64_u16.to_ne_bytes()].concat());
        assert_eq!(command[8..24], [0x1000_u64.to_ne_bytes(), 0x0102_u64.to_ne_bytes()].concat());
        assert!(command[24..].iter().all(|byte| *byte == 0));
        let command = request_command(3, -5, 0x2000);
        assert_eq!(command[..8], [&[0; 2][..], &3_u16.to_ne_bytes(), &(-5_i32).to_ne_bytes()].concat());
        assert_eq!(command[8..], 0x2000_u64.to_ne_bytes());
    }

    #[test]
    fn a_device_can_what_its_export_can() {
        let flags = transmission::SEND_FLUSH | transmission::SEND_FUA | transmission::SEND_TRIM;
        let made = Parameters::of(&device(flags | transmission::SEND_WRITE_ZEROES, 4096));
        assert_eq!((made.length, made.kinds, made.sectors), (60, BASIC | DISCARD, 1 << 19));
        assert_eq!(made.attributes, attribute::VOLATILE_CACHE | attribute::FUA);
        assert_eq!((made.logical_block_shift, made.physical_block_shift), (12, 12));
        assert_eq!((made.discard_sectors_max, made.zero_sectors_max), (0x7f_fff8, 0x7f_fff8));
        assert_eq!((made.discard_granularity, made.discard_segments), (4096, 1));

        let made = Parameters::of(&device(transmission::READ_ONLY | transmission::SEND_FUA, 512));
        assert_eq!((made.kinds, made.attributes, made.logical_block_shift), (BASIC, attribute::READ_ONLY, 9));
        let made = Parameters::of(&device(transmission::SEND_TRIM, 512));
        assert_eq!((made.kinds, made.discard_sectors_max, made.zero_sectors_max), (BASIC | DISCARD, 0x7f_ffff, 0));
    }

    #[test]
    fn a_device_is_told_by_its_mark_and_its_state() {
        let info = DeviceInfo { mark: mark("farshore /s db/data"), state: 2, ..DeviceInfo::default() };
        assert!(info.is_of("farshore /s db/data") && !info.is_of("farshore /s db/log"));
        assert!(info.is_started() && !DeviceInfo::default().is_started() && !DeviceInfo::default().is_of("x"));
    }
}
