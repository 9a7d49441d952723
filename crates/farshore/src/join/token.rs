//! The token that invites one node: where to go, whom to believe there, and what to prove. One word, to be copied.
//!
//! ```text
//! fj  base32 of:  version 1 · address family 4 or 6 · address · port · end · fingerprint · secret · CRC-32C of all this
//! ```
//!
//! Numbers are big-endian; the end is in seconds since 1970. The checksum tells a word that was not copied whole from one that is not
//! believed.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use units::exact::time_text;

/// What a token begins with.
const MARK: &str = "fj";
const VERSION: u8 = 1;
const FINGERPRINT_BYTES: usize = 32;
/// 128 bits, drawn by the kernel: not to be guessed.
pub const SECRET_BYTES: usize = 16;
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// An invitation. Whoever holds it may try once, until its end.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    address: SocketAddr,
    end_unix_s: u64,
    fingerprint: [u8; FINGERPRINT_BYTES],
    secret: [u8; SECRET_BYTES],
}

impl JoinToken {
    /// `fingerprint`: SHA-256 of the certificate that is shown at `address` until `end_unix_s`, in seconds since 1970.
    pub fn new(
        address: SocketAddr,
        end_unix_s: u64,
        fingerprint: [u8; FINGERPRINT_BYTES],
        secret: [u8; SECRET_BYTES],
    ) -> JoinToken {
        JoinToken { address, end_unix_s, fingerprint, secret }
    }

    /// # Errors
    /// A sentence: it is no token, is not whole, or is of another version.
    pub fn parse(text: &str) -> Result<JoinToken, String> {
        let advice = "copy it whole, from the line that 'farshore up' printed last";
        let word = text.trim().to_ascii_lowercase();
        let Some(rest) = word.strip_prefix(MARK) else {
            return Err(format!("this is not a join token, which begins with {MARK:?}; {advice}"));
        };
        let damaged = || format!("the join token is damaged or not whole; {advice}");
        let bytes = decode(rest).ok_or_else(damaged)?;
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if crc32c::crc32c(body) != u32::from_be_bytes(*sum) {
            return Err(damaged());
        }
        let (version, body) = body.split_first().ok_or_else(damaged)?;
        if *version != VERSION {
            return Err(format!(
                "the join token is of version {version}, and this program reads {VERSION}; install the same version of Farshore on \
                 both nodes"
            ));
        }
        JoinToken::fields(body).ok_or_else(damaged)
    }

    fn fields(body: &[u8]) -> Option<JoinToken> {
        let (family, body) = body.split_first()?;
        let (ip, body): (IpAddr, &[u8]) = match family {
            4 => body.split_first_chunk::<4>().map(|(ip, rest)| (IpAddr::from(*ip), rest))?,
            6 => body.split_first_chunk::<16>().map(|(ip, rest)| (IpAddr::from(*ip), rest))?,
            _ => return None,
        };
        let (port, body) = body.split_first_chunk::<2>()?;
        let (end, body) = body.split_first_chunk::<8>()?;
        let (fingerprint, secret) = body.split_first_chunk::<FINGERPRINT_BYTES>()?;
        let address = SocketAddr::new(ip, u16::from_be_bytes(*port));
        let secret = secret.try_into().ok()?;
        Some(JoinToken::new(address, u64::from_be_bytes(*end), *fingerprint, secret))
    }

    /// Where the first node waits.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// SHA-256 of the certificate that the first node shows.
    pub fn fingerprint(&self) -> [u8; FINGERPRINT_BYTES] {
        self.fingerprint
    }

    /// What both prove to hold.
    pub fn secret(&self) -> [u8; SECRET_BYTES] {
        self.secret
    }

    /// Whether it has ended, at so many seconds since 1970.
    pub fn has_ended(&self, now_unix_s: u64) -> bool {
        now_unix_s >= self.end_unix_s
    }

    /// When it ends, for people.
    pub fn end_text(&self) -> String {
        time_text(self.end_unix_s.saturating_mul(1_000_000_000))
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![VERSION];
        match self.address.ip() {
            IpAddr::V4(ip) => {
                bytes.push(4);
                bytes.extend(ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes.push(6);
                bytes.extend(ip.octets());
            }
        }
        bytes.extend(self.address.port().to_be_bytes());
        bytes.extend(self.end_unix_s.to_be_bytes());
        bytes.extend(self.fingerprint);
        bytes.extend(self.secret);
        let sum = crc32c::crc32c(&bytes);
        bytes.extend(sum.to_be_bytes());
        write!(f, "{MARK}{}", encode(&bytes))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({}, until {})", self.address, self.end_text())
    }
}

/// Base32 in lower case, without padding.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    let (mut held, mut bits) = (0u32, 0u32);
    for byte in bytes {
        held = (held << 8 | u32::from(*byte)) & 0xffff;
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(LETTERS[(held >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(LETTERS[(held << (5 - bits) & 31) as usize]));
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut held, mut bits) = (0u32, 0u32);
    for letter in text.bytes() {
        let value = LETTERS.iter().position(|known| *known == letter)?;
        held = (held << 5 | u32::try_from(value).ok()?) & 0xffff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).ok()?);
        }
    }
    // What is left over fills the last letter, with nothing.
    (bits < 5 && held & ((1 << bits) - 1) == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(address: &str) -> JoinToken {
        let address = address.parse().expect("an address");
        JoinToken::new(address, 1_900_000_000, std::array::from_fn(|at| at as u8), [0xa5; SECRET_BYTES])
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        for address in ["10.0.0.1:7337", "[fd00::1]:1"] {
            let (written, text) = (token(address), token(address).to_string());
            assert_eq!(JoinToken::parse(&text), Ok(written.clone()), "{text}");
            assert_eq!(JoinToken::parse(&format!(" {}\n", text.to_uppercase())), Ok(written), "{text}");
            assert!(text.bytes().all(|letter| letter.is_ascii_alphanumeric()) && text.len() < 140, "{text}");
        }
    }

    #[test]
    fn no_letter_of_a_token_can_be_changed_or_lost_unnoticed() {
        let text = token("10.0.0.1:7337").to_string();
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'q' { b'r' } else { b'q' };
            let other = String::from_utf8(other).expect("letters");
            assert!(JoinToken::parse(&other).is_err(), "{other}");
            assert!(JoinToken::parse(&text[..at]).is_err(), "{at}");
        }
        for (wrong, words) in
            [("", "not a join token"), ("fj", "not whole"), ("fj!", "damaged"), ("main", "begins with")]
        {
            let said = JoinToken::parse(wrong).expect_err("refused");
            assert!(said.contains(words) && said.contains("'farshore up'"), "{said}");
        }
    }

    #[test]
    fn a_token_of_another_version_says_so() {
        let mut bytes = vec![2, 4];
        bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
        let said = JoinToken::parse(&format!("{MARK}{}", encode(&bytes))).expect_err("refused");
        assert!(said.contains("version 2") && said.contains("same version"), "{said}");
    }

    #[test]
    fn it_ends_at_its_end() {
        let token = token("10.0.0.1:7337");
        assert!(!token.has_ended(1_899_999_999) && token.has_ended(1_900_000_000));
        assert!(token.end_text().starts_with("2030-03-17T"), "{}", token.end_text());
    }
}
