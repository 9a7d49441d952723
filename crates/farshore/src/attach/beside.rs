//! Work that may wait, beside the one thread that serves a device.

use std::io;
use std::thread::Builder;

use tokio::sync::oneshot;

/// What `work` returns, done by a thread of its own. The runtime's own threads for this would end the helper where the system starts none.
///
/// # Errors
/// No thread can be started now, or the work broke down.
pub(super) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    Builder::new().name("attach".into()).spawn(move || _ = tell.send(work()))?;
    told.await.map_err(|_| io::Error::other("the thread that did it broke down"))
}
