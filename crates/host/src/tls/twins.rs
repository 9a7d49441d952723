//! A certificate whose authority signs by ECDSA has a twin: where `(r, s)` is a signature, `(r, n - s)` is one too, and whoever has the
//! one can write down the other. Both are the same certificate to everybody who verifies it, and have different fingerprints. So a
//! list of fingerprints has to know both.
//!
//! The form is DER: RFC 5280, 4.1 (Certificate), RFC 3279, 2.2.3 (Ecdsa-Sig-Value).

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// The orders `n` of the curves P-256, P-384 and P-521 (NIST SP 800-186, 3.2.1), in hexadecimal digits.
const ORDERS: [&str; 3] = [
    "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
    "01fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6\
     fb71e91386409",
];

/// The certificates that this one may be written as besides: one for each curve that its authority may use. Of one that is signed
/// otherwise there is none.
pub fn twins(certificate: &[u8]) -> Vec<Vec<u8>> {
    ORDERS.iter().filter_map(|order| twin(certificate, &from_hex(order))).collect()
}

/// With `order - s` in the place of `s`. `None`: it is signed otherwise, or on another curve.
fn twin(certificate: &[u8], order: &[u8]) -> Option<Vec<u8>> {
    let body = whole(certificate, SEQUENCE)?;
    let (_, behind_content) = element(body, SEQUENCE)?;
    let (_, bits) = element(behind_content, SEQUENCE)?;
    let signature = whole(whole(bits, BIT_STRING)?.strip_prefix(&[0])?, SEQUENCE)?;
    let (_, second) = element(signature, INTEGER)?;
    let first = &signature[..signature.len() - second.len()];
    let mirrored = difference(order, whole(second, INTEGER)?)?;
    let signature = encode(SEQUENCE, &[first, &encode(INTEGER, &[&mirrored])]);
    let signed = &body[..body.len() - bits.len()];
    Some(encode(SEQUENCE, &[signed, &encode(BIT_STRING, &[&[0], &signature])]))
}

/// The content of the first element, and what stands behind it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(&[tag])?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 3 {
            return None;
        }
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    rest.split_at_checked(length)
}

/// The content of the one element that is there.
fn whole(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    element(bytes, tag).filter(|(_, behind)| behind.is_empty()).map(|(content, _)| content)
}

fn encode(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut bytes = vec![tag];
    if content.len() < 0x80 {
        bytes.push(content.len() as u8);
    } else {
        bytes.push(0x80 | length.len() as u8);
        bytes.extend(length);
    }
    bytes.extend(content);
    bytes
}

/// `order - number` as the content of an INTEGER; `None` unless `0 < number < order`.
fn difference(order: &[u8], number: &[u8]) -> Option<Vec<u8>> {
    let zeroes = number.iter().take_while(|byte| **byte == 0).count();
    let number = &number[zeroes..];
    if number.is_empty() || number.len() > order.len() {
        return None;
    }
    let mut digits = order.to_vec();
    let mut borrow = 0;
    for (at, digit) in digits.iter_mut().rev().enumerate() {
        let less = number.len().checked_sub(at + 1).map_or(0, |at| i32::from(number[at])) + borrow;
        let left = i32::from(*digit) - less;
        (*digit, borrow) = (left.rem_euclid(256) as u8, i32::from(left < 0));
    }
    let zeroes = digits.iter().take_while(|byte| **byte == 0).count();
    digits.drain(..zeroes);
    // An INTEGER has a sign.
    if digits.first()? & 0x80 != 0 {
        digits.insert(0, 0);
    }
    (borrow == 0).then_some(digits)
}

fn from_hex(digits: &str) -> Vec<u8> {
    let value = |digit: u8| (digit as char).to_digit(16).expect("a constant in hexadecimal digits") as u8;
    let digits: Vec<u8> = digits.bytes().map(value).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_from_an_order_of_any_size() {
        let order = from_hex("0100");
        assert_eq!(difference(&order, &[1]), Some(vec![0, 0xff]));
        assert_eq!(difference(&order, &[0, 0xff]), Some(vec![1]));
        for bad in [&[][..], &[0], &[1, 0], &[1, 1], &[1, 0, 0]] {
            assert_eq!(difference(&order, bad), None, "{bad:?}");
        }
        assert_eq!(ORDERS.map(|order| from_hex(order).len()), [32, 48, 66]);
    }

    #[test]
    fn lengths_of_all_forms_are_read_as_they_are_written() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000] {
            let content = vec![7; length];
            let bytes = encode(SEQUENCE, &[&content]);
            assert_eq!(whole(&bytes, SEQUENCE), Some(&content[..]), "{length}");
            assert_eq!(whole(&bytes[..bytes.len() - 1], SEQUENCE), None);
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_twin() {
        for bytes in [&[][..], &[0x30], &[0x30, 0x84, 0, 0, 0, 1, 0], &[0x30, 3, 2, 1, 1]] {
            assert!(twins(bytes).is_empty(), "{bytes:?}");
        }
    }
}
