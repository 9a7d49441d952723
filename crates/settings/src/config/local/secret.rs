//! The shared secret: read only when nobody else can, made only where nothing is.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use host::trusted_file::{self, FileContent, FileRefusal};

use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};

/// The bytes both nodes share. Never printed.
#[derive(Clone)]
pub struct SecretFile(Vec<u8>);

impl SecretFile {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for SecretFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Reads a secret; one line ending at its end is not part of it, so that editors and `echo` do no harm.
///
/// # Errors
/// A sentence: missing, not a plain file, another user's, readable by others, too short or too long.
pub(super) fn read_secret(file: &Path) -> Result<SecretFile, String> {
    let name = file.display();
    let make =
        format!("make one with: (umask 077; head -c 32 /dev/urandom | base64 > {name}) and copy it to the other node");
    let too_long = || format!("the secret file {name} holds more than {SECRET_BYTES_MAX} bytes; is it the right file?");
    // Its line ending does not count.
    let read = trusted_file::read(file, "secret file", FileContent::Secret, SECRET_BYTES_MAX as u64 + 2);
    let mut bytes = read.map_err(|refusal| match refusal {
        FileRefusal::Missing => format!("the secret file {name} does not exist; {make}"),
        FileRefusal::Failed(error) => format!("the secret file {name} cannot be read: {error}"),
        FileRefusal::Unsafe(sentence) => sentence,
        FileRefusal::NotPlain => {
            format!("the secret file {name} is not a plain file; name one that holds 32 or more random bytes")
        }
        FileRefusal::TooLong => too_long(),
    })?;
    for ending in [b'\n', b'\r'] {
        if bytes.last() == Some(&ending) {
            bytes.pop();
        }
    }
    match bytes.len() {
        short if short < SECRET_BYTES_MIN => {
            Err(format!("the secret file {name} holds {short} bytes, and the least is {SECRET_BYTES_MIN}; {make}"))
        }
        long if long > SECRET_BYTES_MAX => Err(too_long()),
        _ => Ok(SecretFile(bytes)),
    }
}

/// Writes a new random secret, mode 0600, as 64 hexadecimal digits of 256 random bits. Never over an existing file.
///
/// # Errors
/// A sentence: the file exists, or cannot be written.
pub fn create_secret(file: &Path) -> Result<(), String> {
    let name = file.display();
    let cannot = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("the secret file {name} exists already; it was left as it is")
        }
        _ => format!("the secret file {name} cannot be written: {error}"),
    };
    let mut random = [0u8; SECRET_BYTES_MIN];
    File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random)).map_err(cannot)?;
    let mut text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    text.push('\n');
    let mut created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(cannot)?;
    created.write_all(text.as_bytes()).and_then(|()| created.sync_all()).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn file_with(dir: &Path, bytes: &[u8], mode: u32) -> std::path::PathBuf {
        let file = dir.join(format!("secret-{}-{mode:o}", bytes.len()));
        std::fs::write(&file, bytes).expect("write");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("chmod");
        file
    }

    #[test]
    fn a_created_secret_reads_back_and_is_private() {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("secret");
        create_secret(&file).expect("created");
        assert_eq!(read_secret(&file).expect("read").bytes().len(), 64);
        assert_eq!(std::fs::metadata(&file).expect("there").mode() & 0o7777, 0o600);
        assert!(create_secret(&file).unwrap_err().contains("exists already"));
    }

    #[test]
    fn length_is_counted_without_one_line_ending() {
        let dir = tempfile::tempdir().expect("dir");
        for (bytes, mode, wrong) in [
            (vec![7; 32], 0o600, None),
            (vec![7; 4096], 0o400, None),
            ([vec![7; 32], b"\r\n".to_vec()].concat(), 0o600, None),
            ([vec![7; 31], b"\n".to_vec()].concat(), 0o600, Some("holds 31 bytes")),
            (vec![], 0o600, Some("holds 0 bytes")),
            (vec![7; 4097], 0o600, Some("more than 4096 bytes")),
            (vec![7; 33], 0o640, Some("chmod 0600")),
            (vec![7; 33], 0o604, Some("mode 0604")),
        ] {
            let file = file_with(dir.path(), &bytes, mode);
            match (read_secret(&file), wrong) {
                (Ok(secret), None) => assert!(secret.bytes().len() >= 32),
                (Err(message), Some(part)) => assert!(message.contains(part), "{message}"),
                (result, _) => panic!("{} bytes: {result:?}", bytes.len()),
            }
        }
        assert!(read_secret(dir.path()).unwrap_err().contains("not a plain file"));
        assert!(read_secret(&dir.path().join("none")).unwrap_err().contains("does not exist"));
    }
}
