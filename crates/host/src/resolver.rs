//! Where a name leads, for those who must not wait for a resolver that hangs.
//!
//! Each look-up has a thread of its own. Not tokio's: that panics where the system gives no thread, and whoever gives a look-up up leaves
//! its thread behind; of those a runtime has so many, for files too, and then nothing is read any more.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;

/// Look-ups at once in the whole process, those included that nobody waits for any more: as many as a daemon has hooks, so that each of
/// them, and a line test, has one.
pub const LOOKUPS_MAX: usize = 16;

static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// A place among the look-ups, given back on drop.
struct LookupPlace(&'static AtomicUsize);

impl LookupPlace {
    fn take(count: &'static AtomicUsize) -> Option<LookupPlace> {
        let one_more = |taken: usize| (taken < LOOKUPS_MAX).then_some(taken + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| LookupPlace(count))
    }
}

impl Drop for LookupPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All addresses of `HOST:PORT`, or of a host and a port, in the resolver's order. May take as long as the resolver does; who does not
/// wait for it drops the future.
///
/// # Errors
/// The name leads nowhere, no thread can be had, or so many look-ups hang already.
pub async fn addresses(name: impl ToSocketAddrs + Send + 'static) -> io::Result<Vec<SocketAddr>> {
    let found = look_up(&LOOKUPS, move || name.to_socket_addrs().map(Iterator::collect))?;
    found.await.unwrap_or_else(|_| Err(io::Error::other("its name could not be looked up")))
}

type FoundAddresses = oneshot::Receiver<io::Result<Vec<SocketAddr>>>;

fn look_up(
    count: &'static AtomicUsize,
    resolve: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<FoundAddresses> {
    let place = LookupPlace::take(count).ok_or_else(|| {
        io::Error::other(format!(
            "the resolver of this machine answers nothing: {LOOKUPS_MAX} names are being looked up"
        ))
    })?;
    let (found_to, found) = oneshot::channel();
    let work = move || {
        let addresses = resolve();
        drop(place);
        // Given up, nobody waits any more.
        let _ = found_to.send(addresses);
    };
    std::thread::Builder::new().name("resolver".into()).spawn(work)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Each attempt of a hook left a thread behind while the resolver answered nothing, until there were none left.
    #[tokio::test]
    async fn a_resolver_that_hangs_takes_so_many_threads_and_no_more() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let hang = || {
            let (release, hung) = mpsc::channel::<()>();
            let found = look_up(&COUNT, move || {
                let _ = hung.recv();
                Ok(Vec::new())
            });
            (release, found.expect("a thread"))
        };
        let mut hanging: Vec<_> = (0..LOOKUPS_MAX).map(|_| hang()).collect();
        let refused = look_up(&COUNT, || Ok(Vec::new())).expect_err("as many hang").to_string();
        assert!(refused.contains("answers nothing: 16 names"), "{refused}");
        let (release, found) = hanging.pop().expect("one of them");
        drop(release);
        assert!(found.await.expect("it ends").expect("no error").is_empty());
        let next = look_up(&COUNT, || Ok(Vec::new())).expect("its place is free");
        assert!(next.await.expect("it ends").expect("no error").is_empty());
    }

    #[tokio::test]
    async fn names_and_addresses_are_found() {
        let found = addresses(("127.0.0.1".to_owned(), 7)).await.expect("an address");
        assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 7))]);
        let found = addresses("localhost:9".to_owned()).await.expect("every system has it");
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 9), "{found:?}");
        assert!(addresses("no port".to_owned()).await.is_err());
    }
}
