//! What one TUN read carries, and how to take it apart.
//!
//! With offloads on, the kernel hands over a whole train of TCP segments as one super-packet and
//! leaves the cutting to "the card". A train is fine for the copy, but a network loses and queues
//! single carriages. So this module counts the carriages, says how long each one is on the wire,
//! and cuts out any run of them as a train of its own.
//!
//! Invariant: a cut piece is what the kernel itself would have sent for these bytes. The transport
//! checksum stays "to be filled in by the card" (the pseudo-header sum only), so payload bytes are
//! never read here, and a flipped payload bit goes unnoticed by the receiving TCP.

use std::ops::Range;

/// Bytes of the virtio network header before every packet on the TUN device.
pub const VNET_BYTES: usize = 10;
/// The largest frame a TUN read can return: the header and one 64 KiB packet.
pub const FRAME_BYTES_MAX: usize = VNET_BYTES + 65_536;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_ECN: u8 = 0x80;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
    /// Anything whose payload we do not know how to find: ICMP, fragments, extension headers.
    Other,
}

/// Where headers end and how the payload divides into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketShape {
    ip_header_bytes: usize,
    /// IP and transport headers together: what every segment repeats.
    header_bytes: usize,
    payload_bytes: usize,
    segment_payload_bytes: usize,
    transport: Transport,
}

impl PacketShape {
    /// Reads the shape of a frame as it came from the TUN device. `None` if the frame is too short
    /// or no IP packet at all.
    pub fn of(frame: &[u8]) -> Option<PacketShape> {
        let ip = frame.get(VNET_BYTES..)?;
        let (ip_header_bytes, protocol) = ip_header(ip)?;
        let transport = match protocol {
            Some(PROTOCOL_TCP) if ip.len() >= ip_header_bytes + TCP_HEADER_BYTES => Transport::Tcp,
            Some(PROTOCOL_UDP) if ip.len() >= ip_header_bytes + UDP_HEADER_BYTES => Transport::Udp,
            _ => Transport::Other,
        };
        let header_bytes = match transport {
            Transport::Tcp => ip_header_bytes + usize::from(ip[ip_header_bytes + 12] >> 4) * 4,
            Transport::Udp => ip_header_bytes + UDP_HEADER_BYTES,
            Transport::Other => ip.len(),
        };
        let payload_bytes = ip.len().checked_sub(header_bytes)?;
        let gso_bytes = usize::from(u16::from_ne_bytes([frame[4], frame[5]]));
        let is_train =
            matches!(frame[1] & !GSO_ECN, GSO_TCP4 | GSO_TCP6) && transport == Transport::Tcp && gso_bytes > 0;
        let segment_payload_bytes = if is_train { gso_bytes } else { payload_bytes };
        Some(PacketShape { ip_header_bytes, header_bytes, payload_bytes, segment_payload_bytes, transport })
    }

    /// How many packets this frame is on the wire; at least one.
    pub fn segments(&self) -> usize {
        if self.payload_bytes == 0 {
            return 1;
        }
        self.payload_bytes.div_ceil(self.segment_payload_bytes)
    }

    /// IP bytes of one segment on the wire: its payload and its own copy of the headers.
    pub fn segment_bytes(&self, segment: usize) -> usize {
        self.header_bytes + self.payload_range(segment..segment + 1).len()
    }

    /// Frame bytes that `write_piece` needs for a run of segments.
    pub fn piece_frame_bytes(&self, segments: Range<usize>) -> usize {
        VNET_BYTES + self.header_bytes + self.payload_range(segments).len()
    }

    /// Writes a run of segments as a frame of its own. `piece` has exactly `piece_frame_bytes`.
    pub fn write_piece(&self, frame: &[u8], segments: Range<usize>, piece: &mut [u8]) {
        assert_eq!(piece.len(), self.piece_frame_bytes(segments.clone()));
        assert!(!segments.is_empty() && segments.end <= self.segments());
        if segments == (0..self.segments()) {
            piece.copy_from_slice(frame);
            return;
        }
        let payload = self.payload_range(segments.clone());
        let headers_end = VNET_BYTES + self.header_bytes;
        piece[..headers_end].copy_from_slice(&frame[..headers_end]);
        piece[headers_end..].copy_from_slice(&frame[headers_end + payload.start..headers_end + payload.end]);
        self.correct_vnet(&segments, piece);
        self.correct_ip(&segments, piece);
        self.correct_tcp(&segments, payload.start, piece);
    }

    /// Flips one bit of one segment's payload in a piece, and leaves the checksum to "the card", so
    /// that the receiving transport accepts it. `draw` picks the bit. False if there is no payload.
    pub fn corrupt(&self, piece: &mut [u8], segment_in_piece: usize, draw: u64) -> bool {
        let headers_end = VNET_BYTES + self.header_bytes;
        if self.transport == Transport::Other || self.payload_bytes == 0 {
            return false;
        }
        let start = headers_end + segment_in_piece * self.segment_payload_bytes;
        let end = piece.len().min(start + self.segment_payload_bytes);
        assert!(start < end, "the segment lies in the piece");
        let bit = draw % ((end - start) as u64 * 8);
        piece[start + (bit / 8) as usize] ^= 1 << (bit % 8);
        self.leave_checksum_to_receiver(piece);
        true
    }

    fn payload_range(&self, segments: Range<usize>) -> Range<usize> {
        let start = (segments.start * self.segment_payload_bytes).min(self.payload_bytes);
        let end = (segments.end * self.segment_payload_bytes).min(self.payload_bytes);
        start..end
    }

    fn correct_vnet(&self, segments: &Range<usize>, piece: &mut [u8]) {
        if segments.start > 0 {
            piece[1] &= !GSO_ECN;
        }
        if segments.len() == 1 {
            // A lone segment is no train; the kernel refuses one that says it is.
            piece[1] = GSO_NONE;
            piece[4..6].fill(0);
        }
    }

    fn correct_ip(&self, segments: &Range<usize>, piece: &mut [u8]) {
        let ip = &mut piece[VNET_BYTES..];
        let ip_bytes = ip.len();
        if ip[0] >> 4 == 6 {
            put_u16(ip, 4, (ip_bytes - self.ip_header_bytes) as u16);
            return;
        }
        put_u16(ip, 2, ip_bytes as u16);
        let id = get_u16(ip, 4).wrapping_add(segments.start as u16);
        put_u16(ip, 4, id);
        put_u16(ip, 10, 0);
        let header_sum = !fold(sum_words(&ip[..self.ip_header_bytes]));
        put_u16(ip, 10, header_sum);
    }

    fn correct_tcp(&self, segments: &Range<usize>, payload_start: usize, piece: &mut [u8]) {
        let pseudo_sum = self.pseudo_header_sum(piece);
        let needs_checksum = piece[0] & NEEDS_CHECKSUM != 0;
        let tcp = &mut piece[VNET_BYTES + self.ip_header_bytes..];
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let sequence = sequence.wrapping_add(payload_start as u32);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if segments.end < self.segments() {
            tcp[13] &= !(TCP_FIN | TCP_PSH);
        }
        if segments.start > 0 {
            tcp[13] &= !TCP_CWR;
        }
        assert!(needs_checksum, "a train always leaves its checksum to the card");
        put_u16(tcp, 16, pseudo_sum);
    }

    fn leave_checksum_to_receiver(&self, piece: &mut [u8]) {
        let checksum_offset = match self.transport {
            Transport::Tcp => 16,
            Transport::Udp => 6,
            Transport::Other => return,
        };
        let is_unused = self.transport == Transport::Udp
            && get_u16(&piece[VNET_BYTES + self.ip_header_bytes..], checksum_offset) == 0;
        if piece[0] & NEEDS_CHECKSUM != 0 || is_unused {
            return;
        }
        let pseudo_sum = self.pseudo_header_sum(piece);
        piece[0] |= NEEDS_CHECKSUM;
        piece[2..4].copy_from_slice(&(self.header_bytes as u16).to_ne_bytes());
        piece[6..8].copy_from_slice(&(self.ip_header_bytes as u16).to_ne_bytes());
        piece[8..10].copy_from_slice(&(checksum_offset as u16).to_ne_bytes());
        put_u16(&mut piece[VNET_BYTES + self.ip_header_bytes..], checksum_offset, pseudo_sum);
    }

    /// The folded sum over the pseudo header, not complemented: what the kernel leaves in the
    /// checksum field of a packet whose checksum the card is to fill in.
    fn pseudo_header_sum(&self, piece: &[u8]) -> u16 {
        let ip = &piece[VNET_BYTES..];
        let addresses = if ip[0] >> 4 == 6 { &ip[8..40] } else { &ip[12..20] };
        let protocol = match self.transport {
            Transport::Tcp => PROTOCOL_TCP,
            _ => PROTOCOL_UDP,
        };
        let transport_bytes = (ip.len() - self.ip_header_bytes) as u32;
        fold(sum_words(addresses) + u32::from(protocol) + transport_bytes)
    }
}

/// Length of the IP header, and the protocol behind it unless the packet is a fragment.
fn ip_header(ip: &[u8]) -> Option<(usize, Option<u8>)> {
    match ip.first()? >> 4 {
        4 if ip.len() >= 20 => {
            let header_bytes = usize::from(ip[0] & 0x0f) * 4;
            let is_fragment = get_u16(ip, 6) & 0x3fff != 0;
            let is_sound = header_bytes >= 20 && ip.len() >= header_bytes;
            is_sound.then_some((header_bytes, (!is_fragment).then_some(ip[9])))
        }
        6 if ip.len() >= 40 => Some((40, Some(ip[6]))),
        _ => None,
    }
}

fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The sum of big-endian words. Callers pass at most 60 bytes, so the sum cannot overflow.
fn sum_words(bytes: &[u8]) -> u32 {
    assert!(bytes.len().is_multiple_of(2) && bytes.len() <= 60);
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A TCP super-packet as the kernel would hand it over, with payload byte i = i mod 251.
    pub fn tcp4_train(payload_bytes: usize, gso_bytes: u16, flags: u8) -> Vec<u8> {
        let mut frame = vec![0; VNET_BYTES + 20 + 32 + payload_bytes];
        frame[0] = NEEDS_CHECKSUM;
        frame[1] = if gso_bytes > 0 { GSO_TCP4 } else { GSO_NONE };
        frame[4..6].copy_from_slice(&gso_bytes.to_ne_bytes());
        frame[6..8].copy_from_slice(&20u16.to_ne_bytes());
        frame[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let ip = &mut frame[VNET_BYTES..];
        let total_bytes = ip.len() as u16;
        ip[0] = 0x45;
        put_u16(ip, 2, total_bytes);
        put_u16(ip, 4, 0xfffe);
        ip[8] = 64;
        ip[9] = PROTOCOL_TCP;
        ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        ip[24..28].copy_from_slice(&0xffff_ff00u32.to_be_bytes());
        ip[32] = 8 << 4;
        ip[33] = flags;
        for (index, byte) in ip[52..].iter_mut().enumerate() {
            *byte = (index % 251) as u8;
        }
        frame
    }

    fn tcp6_train(payload_bytes: usize, gso_bytes: u16) -> Vec<u8> {
        let mut frame = vec![0; VNET_BYTES + 40 + 20 + payload_bytes];
        frame[0] = NEEDS_CHECKSUM;
        frame[1] = GSO_TCP6 | GSO_ECN;
        frame[4..6].copy_from_slice(&gso_bytes.to_ne_bytes());
        let ip = &mut frame[VNET_BYTES..];
        let payload_length = (ip.len() - 40) as u16;
        ip[0] = 0x60;
        put_u16(ip, 4, payload_length);
        ip[6] = PROTOCOL_TCP;
        ip[23] = 1;
        ip[39] = 2;
        ip[52] = 5 << 4;
        ip[53] = 0x10 | TCP_CWR;
        frame
    }

    fn piece_of(frame: &[u8], segments: Range<usize>) -> Vec<u8> {
        let shape = PacketShape::of(frame).expect("an IP packet");
        let mut piece = vec![0; shape.piece_frame_bytes(segments.clone())];
        shape.write_piece(frame, segments, &mut piece);
        piece
    }

    fn tcp_sequence(piece: &[u8]) -> u32 {
        let at = VNET_BYTES + 24;
        u32::from_be_bytes(piece[at..at + 4].try_into().expect("four bytes"))
    }

    #[test]
    fn counts_segments_and_their_wire_bytes() {
        let shape = PacketShape::of(&tcp4_train(3000, 1448, 0x18)).expect("an IP packet");
        assert_eq!(shape.segments(), 3);
        assert_eq!(shape.segment_bytes(0), 1500);
        assert_eq!(shape.segment_bytes(2), 52 + 104);
        let pure_ack = PacketShape::of(&tcp4_train(0, 0, 0x10)).expect("an IP packet");
        assert_eq!((pure_ack.segments(), pure_ack.segment_bytes(0)), (1, 52));
    }

    #[test]
    fn the_whole_range_is_a_plain_copy() {
        let frame = tcp4_train(3000, 1448, 0x18);
        assert_eq!(piece_of(&frame, 0..3), frame);
    }

    #[test]
    fn pieces_carry_their_own_sequence_length_id_and_flags() {
        let frame = tcp4_train(1448 * 4, 1448, 0x10 | TCP_FIN | TCP_PSH | TCP_CWR);
        let head = piece_of(&frame, 0..2);
        let tail = piece_of(&frame, 2..4);
        assert_eq!(tcp_sequence(&head), 0xffff_ff00);
        assert_eq!(tcp_sequence(&tail), 0xffff_ff00u32.wrapping_add(2896), "wraps round");
        assert_eq!(get_u16(&tail[VNET_BYTES..], 2), 52 + 2896);
        assert_eq!(get_u16(&tail[VNET_BYTES..], 4), 0, "the id wraps round too");
        assert_eq!(head[VNET_BYTES + 33], 0x10 | TCP_CWR);
        assert_eq!(tail[VNET_BYTES + 33], 0x10 | TCP_FIN | TCP_PSH);
        assert_eq!(&tail[VNET_BYTES + 52..], &frame[VNET_BYTES + 52 + 2896..]);
        assert_eq!(head[1], GSO_TCP4, "two segments are still a train");
    }

    #[test]
    fn a_lone_segment_is_no_train() {
        let piece = piece_of(&tcp4_train(1448 * 3, 1448, 0x10), 1..2);
        assert_eq!((piece[1], &piece[4..6]), (GSO_NONE, &[0u8, 0][..]));
        assert_eq!(piece[0], NEEDS_CHECKSUM);
    }

    #[test]
    fn checksums_of_a_piece_add_up() {
        let piece = piece_of(&tcp4_train(1448 * 3, 1448, 0x10), 1..3);
        let ip = &piece[VNET_BYTES..];
        assert_eq!(fold(sum_words(&ip[..20])), 0xffff, "a valid IPv4 header sums to all ones");
        let expected = fold(sum_words(&ip[12..20]) + 6 + (ip.len() as u32 - 20));
        assert_eq!(get_u16(ip, 20 + 16), expected);
    }

    #[test]
    fn ipv6_pieces_state_their_payload_and_drop_the_ecn_mark() {
        let frame = tcp6_train(1440 * 3, 1440);
        let tail = piece_of(&frame, 1..3);
        assert_eq!(get_u16(&tail[VNET_BYTES..], 4), 20 + 2880);
        assert_eq!(tail[1], GSO_TCP6);
        assert_eq!(tail[VNET_BYTES + 53], 0x10);
        let expected = fold(1 + 2 + 6 + 20 + 2880);
        assert_eq!(get_u16(&tail[VNET_BYTES + 40..], 16), expected);
    }

    #[test]
    fn corruption_flips_one_payload_bit_of_the_named_segment() {
        let frame = tcp4_train(1448 * 3, 1448, 0x10);
        let shape = PacketShape::of(&frame).expect("an IP packet");
        for draw in [0, 7, 1448 * 8 - 1, u64::MAX] {
            let mut piece = piece_of(&frame, 1..3);
            let clean = piece.clone();
            assert!(shape.corrupt(&mut piece, 1, draw));
            let changed: Vec<usize> = (0..piece.len()).filter(|&at| piece[at] != clean[at]).collect();
            assert_eq!(changed.len(), 1);
            assert!(changed[0] >= VNET_BYTES + 52 + 1448);
            assert_eq!((piece[changed[0]] ^ clean[changed[0]]).count_ones(), 1);
        }
    }

    #[test]
    fn corruption_of_a_finished_checksum_hands_it_to_the_receiver() {
        let mut frame = tcp4_train(100, 0, 0x18);
        frame[0] = 0;
        let shape = PacketShape::of(&frame).expect("an IP packet");
        assert!(shape.corrupt(&mut frame, 0, 3));
        assert_eq!(frame[0], NEEDS_CHECKSUM);
        let expected = shape.pseudo_header_sum(&frame);
        assert_eq!(get_u16(&frame[VNET_BYTES + 20..], 16), expected);
    }

    #[test]
    fn icmp_and_fragments_are_one_segment_without_payload() {
        let mut frame = tcp4_train(100, 0, 0);
        frame[VNET_BYTES + 9] = 1;
        let icmp = PacketShape::of(&frame).expect("an IP packet");
        assert_eq!((icmp.segments(), icmp.segment_bytes(0)), (1, 152));
        assert!(!icmp.corrupt(&mut frame, 0, 0));
        let mut fragment = tcp4_train(100, 0, 0);
        put_u16(&mut fragment[VNET_BYTES..], 6, 0x2000);
        assert_eq!(PacketShape::of(&fragment).expect("an IP packet").transport, Transport::Other);
    }

    #[test]
    fn garbage_has_no_shape() {
        assert_eq!(PacketShape::of(&[0; 9]), None);
        assert_eq!(PacketShape::of(&[0; 40]), None);
        let mut short = vec![0; VNET_BYTES + 20];
        short[VNET_BYTES] = 0x4f;
        assert_eq!(PacketShape::of(&short), None, "a header longer than the packet");
        let mut data_offset = tcp4_train(4, 0, 0);
        data_offset[VNET_BYTES + 32] = 0xf0;
        assert_eq!(PacketShape::of(&data_offset), None, "a TCP header longer than the packet");
    }
}
