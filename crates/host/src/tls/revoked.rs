//! Certificates that are taken back one by one, before their time is over.

use std::collections::BTreeSet;

use super::facts::CertificateFacts;

/// Hexadecimal digits of a SHA-256.
const FINGERPRINT_DIGITS: usize = 64;
/// Of a serial number: 20 bytes, says RFC 5280, and some authorities take more.
const SERIAL_DIGITS_MAX: usize = 64;

/// The list of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    fingerprints: BTreeSet<String>,
    /// Without leading zeroes.
    serials: BTreeSet<String>,
}

impl Revoked {
    /// Reads the list: a fingerprint or a serial number in each line, as openssl prints them; `#` begins a comment.
    ///
    /// # Errors
    /// A sentence: which line is neither.
    pub fn parse(text: &str) -> Result<Revoked, String> {
        let mut revoked = Revoked::default();
        for (number, line) in text.lines().enumerate() {
            let said = line.split('#').next().unwrap_or_default().trim().to_ascii_lowercase();
            if said.is_empty() {
                continue;
            }
            let serial = said.strip_prefix("serial=").or_else(|| said.strip_prefix("serial "));
            let fingerprint = said.strip_prefix("sha256 fingerprint=").unwrap_or(&said);
            let digits: String = serial.unwrap_or(fingerprint).chars().filter(|letter| *letter != ':').collect();
            let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            match serial {
                Some(_) if is_hex && (1..=SERIAL_DIGITS_MAX).contains(&digits.len()) => {
                    revoked.serials.insert(significant(&digits).to_owned());
                }
                None if is_hex && digits.len() == FINGERPRINT_DIGITS => {
                    revoked.fingerprints.insert(digits);
                }
                _ => {
                    return Err(format!(
                        "line {} is neither a fingerprint (64 hexadecimal digits, as 'farshore cert show' and 'openssl x509 -noout \
                         -fingerprint -sha256' print it) nor a serial number (serial=HEX)",
                        number + 1
                    ));
                }
            }
        }
        Ok(revoked)
    }

    /// Whether everything that `other` names is named here.
    pub(super) fn includes(&self, other: &Revoked) -> bool {
        self.fingerprints.is_superset(&other.fingerprints) && self.serials.is_superset(&other.serials)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many lines say something.
    pub fn len(&self) -> usize {
        self.fingerprints.len() + self.serials.len()
    }

    /// In whatever form its holder shows it.
    pub fn has(&self, facts: &CertificateFacts) -> bool {
        let mut fingerprints = std::iter::once(&facts.fingerprint).chain(&facts.other_fingerprints);
        fingerprints.any(|fingerprint| self.fingerprints.contains(fingerprint))
            || self.serials.contains(significant(&facts.serial))
    }
}

fn significant(digits: &str) -> &str {
    digits.trim_start_matches('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_openssl_prints_is_read() {
        let digits = "0a".repeat(32);
        let colons = ["0A"; 32].join(":");
        for text in [
            digits.clone(),
            format!("# stolen\n\n  {colons}   # the laptop\r\n"),
            format!("sha256 Fingerprint={colons}\nserial=00"),
        ] {
            let revoked = Revoked::parse(&text).expect("sound");
            assert!(revoked.fingerprints.contains(&digits), "{text}");
        }
        let serials = Revoked::parse("serial=0A:1b\nserial 000A1B\n").expect("sound").serials;
        assert_eq!(serials.into_iter().collect::<Vec<_>>(), ["a1b"]);
        assert!(Revoked::parse("# nobody\n").expect("sound").is_empty());
    }

    #[test]
    fn a_line_that_says_nothing_is_named() {
        for bad in ["0a0b", "serial=", "serial=xyz", "backup", &"0".repeat(63), &format!("serial={}", "1".repeat(65))] {
            let why = Revoked::parse(&format!("# list\n{bad}\n")).unwrap_err();
            assert!(why.starts_with("line 2 is neither"), "{why}");
        }
    }
}
