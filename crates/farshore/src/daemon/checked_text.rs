//! Small records that are text: the last line is a checksum of the lines before it.

use anyhow::{Context, bail};

/// The lines before the checksum.
///
/// # Errors
/// It is cut short, or its checksum is another one.
pub(super) fn body(text: &str) -> anyhow::Result<String> {
    let (body, checksum) = text.trim_end_matches('\n').rsplit_once('\n').context("it is cut short")?;
    let body = format!("{body}\n");
    if checksum != format!("checksum {:08x}", crc32c::crc32c(body.as_bytes())) {
        bail!("its checksum does not match");
    }
    Ok(body)
}
