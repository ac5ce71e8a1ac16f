//! Which of this host's addresses others should use.
//!
//! `NEXAR_SOCKET_IFNAME` has NCCL's grammar: a list of prefixes, `^` before it to exclude, `=` for
//! exact names.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc::channel;
use std::time::Instant;

use crate::config::{Config, Family};
use crate::error::{Error, Result};
use crate::runtime;

/// Where a root listening on `port` can be reached: up to two addresses, best first.
pub fn of_root(
    config: &Config,
    advertised: Option<SocketAddr>,
    port: u16,
) -> Result<Vec<SocketAddr>> {
    if let Some(address) = advertised {
        return Ok(vec![address]);
    }
    let addresses = candidates(config)?;
    let first = addresses.first().copied();
    // The other family, for ranks that do not have the first.
    let other = first.and_then(|first| {
        addresses.iter().copied().find(|ip| ip.is_ipv4() != first.is_ipv4() && !ip.is_loopback())
    });
    let found: Vec<_> =
        first.into_iter().chain(other).map(|ip| SocketAddr::new(ip, port)).collect();
    if found.is_empty() {
        return Err(Error::System(format!("no network interface fits {}", wish(config))));
    }
    Ok(found)
}

/// Where this rank, listening on `port`, can be reached by those who reach the root.
pub fn of_rank(
    config: &Config,
    advertised: Option<SocketAddr>,
    port: u16,
    root: SocketAddr,
) -> Result<Vec<SocketAddr>> {
    if let Some(address) = advertised {
        return Ok(vec![address]);
    }
    if !config.socket_ifname.is_empty() {
        let fitting = candidates(config)?.into_iter().filter(|ip| ip.is_ipv4() == root.is_ipv4());
        let first = fitting.take(1).map(|ip| SocketAddr::new(ip, port)).collect::<Vec<_>>();
        if !first.is_empty() {
            return Ok(first);
        }
    }
    let unusable = |error: std::io::Error| Error::System(format!("no route to {root}: {error}"));
    let any: IpAddr = if root.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    // Connecting a UDP socket sends nothing; the kernel only says which address it would use.
    let socket = UdpSocket::bind((any, 0)).map_err(unusable)?;
    socket.connect(root).map_err(unusable)?;
    let ip = socket.local_addr().map_err(unusable)?.ip();
    Ok(vec![SocketAddr::new(ip, port)])
}

/// Resolves `host:port`, `[v6]:port`. Blocks until the deadline: not for a task of the runtime.
pub fn resolve(text: &str, config: &Config, deadline: Instant) -> Result<Vec<SocketAddr>> {
    let name = text.to_owned();
    let ask = move || name.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let found = match text.parse() {
        Ok(address) => vec![address],
        Err(_) => answer_until(deadline, ask)?
            .ok_or_else(|| Error::Timeout {
                limit_ms: config.init_timeout.as_millis(),
                blame: format!("{text} was not resolved: no answer from a name server"),
            })?
            .map_err(|error| Error::System(format!("{text} cannot be resolved: {error}")))?,
    };
    if found.is_empty() {
        return Err(Error::System(format!("{text} has no address")));
    }
    if found[0].port() == 0 {
        return Err(Error::Argument(format!("{text} has no port")));
    }
    Ok(found)
}

/// What `ask` returns, if it does in time. getaddrinfo may wait for name servers as long as it
/// likes, so a thread of its own asks.
fn answer_until<T: Send + 'static>(
    deadline: Instant,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>> {
    let (sender, answer) = channel();
    runtime::start_thread("nexar-resolve", move || drop(sender.send(ask())))?;
    Ok(answer.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok())
}

/// Where `NEXAR_ADVERTISE_ADDR` says that others reach this process. Blocks until the deadline.
pub fn advertised(config: &Config, port: u16, deadline: Instant) -> Result<Option<SocketAddr>> {
    let Some(text) = &config.advertise_addr else { return Ok(None) };
    let bare: std::result::Result<IpAddr, _> = text.trim_matches(['[', ']']).parse();
    if let Ok(ip) = bare {
        return Ok(Some(SocketAddr::new(ip, port)));
    }
    let with_port = if text.contains(':') { text.clone() } else { format!("{text}:{port}") };
    resolve(&with_port, config, deadline).map(|found| found.first().copied())
}

/// Addresses of interfaces that fit the settings, best first.
fn candidates(config: &Config) -> Result<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs()
        .map_err(|error| Error::System(format!("network interfaces cannot be listed: {error}")))?;
    let mut found: Vec<(u8, bool, IpAddr)> = interfaces
        .iter()
        .filter(|interface| fits(&interface.name, &config.socket_ifname))
        .filter(|interface| match config.socket_family {
            Family::Any => true,
            Family::V4 => interface.ip().is_ipv4(),
            Family::V6 => interface.ip().is_ipv6(),
        })
        .filter(|interface| !is_link_local(interface.ip()))
        .map(|interface| (class(&interface.name), interface.ip().is_ipv6(), interface.ip()))
        .collect();
    found.sort();
    let best = found.first().map(|(class, ..)| *class);
    Ok(found.into_iter().filter(|(class, ..)| Some(*class) == best).map(|(.., ip)| ip).collect())
}

/// Real interfaces first, then bridges of containers, then loopback.
fn class(name: &str) -> u8 {
    match name {
        _ if name.starts_with("docker") => 1,
        _ if name.starts_with("lo") => 2,
        _ if name.starts_with("virbr") => 3,
        _ => 0,
    }
}

/// An address that means another host on each interface.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0) == 0xfe80,
    }
}

fn fits(name: &str, wish: &str) -> bool {
    let (exclude, rest) = wish.strip_prefix('^').map_or((false, wish), |rest| (true, rest));
    let (exact, list) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
    let mut words = list.split(',').map(str::trim).filter(|word| !word.is_empty()).peekable();
    if words.peek().is_none() {
        return true;
    }
    let named = words.any(|word| if exact { name == word } else { name.starts_with(word) });
    named != exclude
}

fn wish(config: &Config) -> String {
    let name = if config.socket_ifname.is_empty() { "any" } else { &config.socket_ifname };
    format!("NEXAR_SOCKET_IFNAME={name}, NEXAR_SOCKET_FAMILY={:?}", config.socket_family)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn interface_names_follow_nccls_grammar() {
        for (wish, yes, no) in [
            ("", "eth0", ""),
            ("eth", "eth0", "ib0"),
            ("eth,ib", "ib0", "lo"),
            ("=eth1", "eth1", "eth10"),
            ("^docker,lo", "eth0", "docker0"),
            ("^=eth1", "eth10", "eth1"),
        ] {
            assert!(fits(yes, wish), "{wish:?} takes {yes}");
            assert!(no.is_empty() || !fits(no, wish), "{wish:?} leaves {no}");
        }
    }

    #[test]
    fn the_address_that_reaches_loopback_is_loopback() {
        let config = Config::default();
        let root = "127.0.0.1:9".parse().unwrap();
        assert_eq!(of_rank(&config, None, 77, root).unwrap(), ["127.0.0.1:77".parse().unwrap()]);
    }

    #[test]
    fn an_advertised_address_goes_before_all() {
        for (text, expected) in
            [("203.0.113.5", "203.0.113.5:77"), ("[2001:db8::5]:88", "[2001:db8::5]:88")]
        {
            let config = Config { advertise_addr: Some(text.to_owned()), ..Config::default() };
            let address = advertised(&config, 77, Instant::now()).unwrap();
            assert_eq!(of_root(&config, address, 77).unwrap(), [expected.parse().unwrap()]);
        }
    }

    #[test]
    fn a_name_server_that_does_not_answer_is_waited_for_until_the_deadline() {
        let (answer, asked) = channel::<()>();
        let began = Instant::now();
        let limit = Duration::from_millis(50);
        let found = answer_until(began + limit, move || asked.recv().is_ok()).unwrap();
        assert_eq!(found, None);
        assert!(began.elapsed() >= limit);
        drop(answer);
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(answer_until(later, || 7).unwrap(), Some(7));
    }
}
