//! The line between the two daemons: an emulated WAN that someone else set up, or our own relay.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::numbers::Sorted;
use crate::relay::{Relay, RelayOptions};
use crate::terms::{RATE_BITS, RTT};

/// Odd, so that the median is one of them.
const PROBES: usize = 7;
const CONTROL_PATIENCE: Duration = Duration::from_secs(5);

/// Which end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CableEnd {
    Near,
    Far,
}

/// The line, once.
pub enum Cable {
    Wan(DemoWan),
    /// One relay per pair of daemons; the one in use.
    Relay(Option<Relay>),
}

/// What `cargo xtask demo` tells in the environment.
pub struct DemoWan {
    near_namespace: String,
    far_namespace: String,
    near_address: IpAddr,
    far_address: IpAddr,
    control: PathBuf,
}

/// Where the two daemons listen, and where the near one finds the far one.
pub struct Ends {
    pub near: SocketAddr,
    pub far: SocketAddr,
    pub far_from_near: SocketAddr,
}

impl Cable {
    /// The WAN in the environment, or with `relay` one of our own.
    ///
    /// # Errors
    /// There is no WAN in the environment, or half a one.
    pub fn find(relay: bool) -> Result<Self> {
        if relay {
            return Ok(Cable::Relay(None));
        }
        let variable = |name: &str| {
            std::env::var(name).with_context(|| {
                format!(
                    "{name} is not set: no WAN is here; run `cargo xtask demo`, or `cargo xtask demo --relay` anywhere"
                )
            })
        };
        let address = |name: &str| -> Result<IpAddr> {
            let text = variable(name)?;
            text.parse().with_context(|| format!("{name} is {text:?}, which is not an IP address"))
        };
        Ok(Cable::Wan(DemoWan {
            near_namespace: variable("FARSHORE_WAN_NEAR_NS")?,
            far_namespace: variable("FARSHORE_WAN_FAR_NS")?,
            near_address: address("FARSHORE_WAN_NEAR_ADDR")?,
            far_address: address("FARSHORE_WAN_FAR_ADDR")?,
            control: variable("FARSHORE_WAN_CONTROL")?.into(),
        }))
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Cable::Wan(_) => "wan",
            Cable::Relay(_) => "relay",
        }
    }

    /// Addresses for the next pair of daemons; `pair` counts from 0.
    ///
    /// # Errors
    /// The relay cannot be started.
    pub fn lay(&mut self, pair: u16) -> Result<Ends> {
        match self {
            Cable::Wan(wan) => {
                let port = 7337 + pair;
                let far = SocketAddr::new(wan.far_address, port);
                Ok(Ends { near: SocketAddr::new(wan.near_address, port), far, far_from_near: far })
            }
            Cable::Relay(current) => {
                *current = None;
                let (near, far) = (free_address()?, free_address()?);
                let relay = start_relay(far)?;
                let far_from_near = relay.address();
                *current = Some(relay);
                Ok(Ends { near, far, far_from_near })
            }
        }
    }

    /// A program at one end.
    pub fn command(&self, end: CableEnd, program: &Path) -> Command {
        match self {
            Cable::Wan(wan) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", wan.namespace(end)]).arg(program);
                command
            }
            Cable::Relay(_) => Command::new(program),
        }
    }

    /// Pull it.
    ///
    /// # Errors
    /// The WAN does not do as told.
    pub fn cut(&self) -> Result<()> {
        match self {
            Cable::Wan(wan) => wan.order("cut"),
            Cable::Relay(relay) => {
                relay.iter().for_each(Relay::cut);
                Ok(())
            }
        }
    }

    /// Put it back.
    ///
    /// # Errors
    /// The WAN does not do as told.
    pub fn restore(&self) -> Result<()> {
        match self {
            Cable::Wan(wan) => wan.order("restore"),
            Cable::Relay(relay) => {
                relay.iter().for_each(Relay::restore);
                Ok(())
            }
        }
    }

    /// The round trip, measured now. `far` is where the far daemon listens.
    ///
    /// # Errors
    /// Nothing answers at the other end.
    pub fn rtt(&self, program: &Path) -> Result<Duration> {
        match self {
            Cable::Wan(wan) => wan.rtt(self, program),
            Cable::Relay(_) => relay_rtt(),
        }
    }
}

impl DemoWan {
    fn namespace(&self, end: CableEnd) -> &str {
        match end {
            CableEnd::Near => &self.near_namespace,
            CableEnd::Far => &self.far_namespace,
        }
    }

    fn order(&self, word: &str) -> Result<()> {
        let shown_path = self.control.display();
        let mut stream = UnixStream::connect(&self.control)
            .with_context(|| format!("the WAN's control socket {shown_path} does not answer; is the WAN still up?"))?;
        stream.set_read_timeout(Some(CONTROL_PATIENCE))?;
        stream.write_all(format!("{word}\n").as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        ensure!(
            answer.trim_end() == "ok",
            "the WAN at {shown_path} was told to {word} and said: {}",
            answer.trim_end()
        );
        Ok(())
    }

    /// A refused TCP connection takes exactly one round trip, so nobody need listen.
    fn rtt(&self, cable: &Cable, program: &Path) -> Result<Duration> {
        let target = SocketAddr::new(self.far_address, 9);
        let output = cable.command(CableEnd::Near, program).args(["--probe", &target.to_string()]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.trim().parse() {
            Ok(micros) if output.status.success() => Ok(Duration::from_micros(micros)),
            _ => bail!(
                "the round trip to {target} cannot be measured: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }
    }
}

/// The median time of a TCP connection attempt to `address`, accepted or refused.
///
/// # Errors
/// There is no way to that address.
pub fn probe(address: SocketAddr) -> Result<Duration> {
    let mut times = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let began = Instant::now();
        match TcpStream::connect_timeout(&address, CONTROL_PATIENCE) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            Err(error) => bail!("{address} cannot be reached: {error}"),
        }
        times.push(began.elapsed());
    }
    Ok(Sorted::new(times).median())
}

/// One byte there and back, over a relay of the same making.
fn relay_rtt() -> Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let relay = start_relay(listener.local_addr()?)?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut byte = [0];
        for _ in 0..PROBES {
            stream.read_exact(&mut byte)?;
            stream.write_all(&byte)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(relay.address())?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(CONTROL_PATIENCE))?;
    let mut times = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let began = Instant::now();
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])?;
        times.push(began.elapsed());
    }
    drop(stream);
    drop(relay);
    let _ = echo.join();
    Ok(Sorted::new(times).median())
}

fn start_relay(target: SocketAddr) -> Result<Relay> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Relay::start(RelayOptions { listen, target, rtt: RTT, rate_bits: RATE_BITS })
        .context("the relay cannot listen on 127.0.0.1")
}

/// A loopback address whose port nobody used a moment ago.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").context("no free port on 127.0.0.1")?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_is_a_probe() {
        let address = free_address().expect("loopback");
        assert!(probe(address).expect("refused is an answer") < CONTROL_PATIENCE);
    }
}
