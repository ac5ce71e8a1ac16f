//! Chooses the addresses of this host that other ranks use.
//!
//! `NEXAR_SOCKET_IFNAME` has NCCL's grammar: a list of prefixes; `^` before it excludes them, `=`
//! means exact names.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc::channel;
use std::time::Instant;

use crate::config::{Config, Family};
use crate::error::{Error, Result};
use crate::runtime;

/// The addresses of a root that listens on `port`: at most two, best first.
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
    // An address of the other family, for ranks that do not have the first family.
    let other = first.and_then(|first| {
        addresses.iter().copied().find(|ip| ip.is_ipv4() != first.is_ipv4() && !ip.is_loopback())
    });
    let found: Vec<_> =
        first.into_iter().chain(other).map(|ip| SocketAddr::new(ip, port)).collect();
    if found.is_empty() {
        return Err(Error::System(format!("no network interface matches {}", filter(config))));
    }
    Ok(found)
}

/// The address of this rank, which listens on `port`, for ranks that can reach the root.
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
    // Connecting a UDP socket sends nothing; the kernel only chooses the local address.
    let socket = UdpSocket::bind((any, 0)).map_err(unusable)?;
    socket.connect(root).map_err(unusable)?;
    let ip = socket.local_addr().map_err(unusable)?.ip();
    Ok(vec![SocketAddr::new(ip, port)])
}

/// Resolves `host:port` or `[v6]:port`. May block until the deadline: not for a task of the
/// runtime.
pub fn resolve(text: &str, config: &Config, deadline: Instant) -> Result<Vec<SocketAddr>> {
    let name = text.to_owned();
    let query = move || name.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let found = match text.parse() {
        Ok(address) => vec![address],
        Err(_) => answer_until(deadline, query)?
            .ok_or_else(|| Error::Timeout {
                limit_ms: config.init_timeout.as_millis(),
                blame: format!("{text} was not resolved: no name server answered"),
            })?
            .map_err(|error| Error::System(format!("{text} cannot be resolved: {error}")))?,
    };
    if found.is_empty() {
        return Err(Error::System(format!("{text} has no address")));
    }
    if found[0].port() == 0 {
        return Err(Error::Argument(format!("{text} has no port: expected host:port")));
    }
    Ok(found)
}

/// Executes `query` on a thread of its own, because getaddrinfo may wait for name servers without
/// limit. `None` if it has not returned by the deadline.
fn answer_until<T: Send + 'static>(
    deadline: Instant,
    query: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>> {
    let (sender, answer) = channel();
    runtime::start_thread("nexar-resolve", move || drop(sender.send(query())))?;
    Ok(answer.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok())
}

/// The address in `NEXAR_ADVERTISE_ADDR`, with `port` if it has none. May block until the deadline.
pub fn advertised(config: &Config, port: u16, deadline: Instant) -> Result<Option<SocketAddr>> {
    let Some(text) = &config.advertise_addr else { return Ok(None) };
    let bare: std::result::Result<IpAddr, _> = text.trim_matches(['[', ']']).parse();
    if let Ok(ip) = bare {
        return Ok(Some(SocketAddr::new(ip, port)));
    }
    let with_port = if text.contains(':') { text.clone() } else { format!("{text}:{port}") };
    resolve(&with_port, config, deadline).map(|found| found.first().copied())
}

/// The addresses of the best class of interfaces that match the settings, IPv4 first.
fn candidates(config: &Config) -> Result<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs()
        .map_err(|error| Error::System(format!("network interfaces cannot be listed: {error}")))?;
    let mut found: Vec<(u8, bool, IpAddr)> = interfaces
        .iter()
        .filter(|interface| matches(&interface.name, &config.socket_ifname))
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

/// The class of an interface, best first: physical, bridge of containers, loopback, bridge of
/// virtual machines.
fn class(name: &str) -> u8 {
    match name {
        _ if name.starts_with("docker") => 1,
        _ if name.starts_with("lo") => 2,
        _ if name.starts_with("virbr") => 3,
        _ => 0,
    }
}

/// Whether the address names different hosts on different interfaces.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0) == 0xfe80,
    }
}

/// Whether an interface name matches a filter in the grammar of `NEXAR_SOCKET_IFNAME`.
fn matches(name: &str, filter: &str) -> bool {
    let (exclude, rest) = filter.strip_prefix('^').map_or((false, filter), |rest| (true, rest));
    let (exact, list) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
    let mut words = list.split(',').map(str::trim).filter(|word| !word.is_empty()).peekable();
    if words.peek().is_none() {
        return true;
    }
    let named = words.any(|word| if exact { name == word } else { name.starts_with(word) });
    named != exclude
}

/// The settings that restrict the interfaces, for error texts.
fn filter(config: &Config) -> String {
    let name = if config.socket_ifname.is_empty() { "any" } else { &config.socket_ifname };
    format!("NEXAR_SOCKET_IFNAME={name}, NEXAR_SOCKET_FAMILY={:?}", config.socket_family)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn interface_names_follow_nccls_grammar() {
        for (filter, yes, no) in [
            ("", "eth0", ""),
            ("eth", "eth0", "ib0"),
            ("eth,ib", "ib0", "lo"),
            ("=eth1", "eth1", "eth10"),
            ("^docker,lo", "eth0", "docker0"),
            ("^=eth1", "eth10", "eth1"),
        ] {
            assert!(matches(yes, filter), "{filter:?} matches {yes}");
            assert!(no.is_empty() || !matches(no, filter), "{filter:?} does not match {no}");
        }
    }

    #[test]
    fn the_address_that_reaches_loopback_is_loopback() {
        let config = Config::default();
        let root = "127.0.0.1:9".parse().unwrap();
        assert_eq!(of_rank(&config, None, 77, root).unwrap(), ["127.0.0.1:77".parse().unwrap()]);
    }

    #[test]
    fn an_advertised_address_takes_precedence_over_all_others() {
        for (text, expected) in
            [("203.0.113.5", "203.0.113.5:77"), ("[2001:db8::5]:88", "[2001:db8::5]:88")]
        {
            let config = Config { advertise_addr: Some(text.to_owned()), ..Config::default() };
            let address = advertised(&config, 77, Instant::now()).unwrap();
            assert_eq!(of_root(&config, address, 77).unwrap(), [expected.parse().unwrap()]);
        }
    }

    #[test]
    fn a_query_that_does_not_return_ends_at_the_deadline() {
        let (answer, query) = channel::<()>();
        let began = Instant::now();
        let limit = Duration::from_millis(50);
        let found = answer_until(began + limit, move || query.recv().is_ok()).unwrap();
        assert_eq!(found, None);
        assert!(began.elapsed() >= limit);
        drop(answer);
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(answer_until(later, || 7).unwrap(), Some(7));
    }
}
