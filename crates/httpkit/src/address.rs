//! The client's address: of the connection, or the one that a trusted proxy forwards.
//!
//! [`serve`](crate::serve()) inserts [`ClientAddress`] into each request. Rate limits and the audit log use only that. This
//! module reads the header of the PROXY protocol and `X-Forwarded-For`. Only a trusted proxy can set them.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// Time limit of a PROXY protocol header, from its first byte.
pub const PROXY_HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a PROXY protocol header.
pub const PROXY_HEADER_BYTES_MAX: usize = 4 * 1024;
/// Start of a header of version 1. No HTTP method starts with it.
const V1_PREFIX: &[u8] = b"PROXY ";
/// Maximum length of a header of version 1.
const V1_BYTES_MAX: usize = 107;
/// Start of a header of version 2.
const V2_PREFIX: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length of the part of a header of version 2 that precedes the addresses.
const V2_FIXED_BYTES: usize = 16;

/// Address of the client that sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// The address in a request's extensions. A request that came over no connection has the unspecified address.
    pub fn in_extensions(extensions: &Extensions) -> IpAddr {
        extensions.get().map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |Self(address)| *address)
    }

    /// The address of a request; see [`Self::in_extensions`].
    pub fn of(parts: &Parts) -> IpAddr {
        Self::in_extensions(&parts.extensions)
    }
}

/// A network of proxies: an address, or an address and a prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyNetwork(IpNet);

/// Text that is neither an address nor a network.
#[derive(Debug, thiserror::Error)]
#[error("not an address or a network")]
pub struct NotANetwork;

impl FromStr for ProxyNetwork {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let address = || text.parse::<IpAddr>().map(|address| IpNet::from(address.to_canonical()));
        text.parse().or_else(|_| address()).map(Self).map_err(|_| NotANetwork)
    }
}

/// The proxies whose information about the client is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustedProxies {
    /// The proxies in these networks.
    Networks(Vec<ProxyNetwork>),
    /// Every peer is the only proxy in front of the service (`behind_proxy = true` of earlier versions).
    EveryPeer,
}

impl Default for TrustedProxies {
    fn default() -> Self {
        Self::Networks(Vec::new())
    }
}

impl TrustedProxies {
    /// Returns true if the peer of a connection is a trusted proxy.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        matches!(self, Self::EveryPeer) || self.lists(peer)
    }

    /// Returns true if an address is in one of the networks.
    pub(crate) fn lists(&self, address: IpAddr) -> bool {
        match self {
            Self::Networks(networks) => networks.iter().any(|network| network.0.contains(&address)),
            Self::EveryPeer => false,
        }
    }

    /// The client's address of a request. `peer` is the peer of the connection, `announced` the client that the PROXY
    /// protocol announced.
    ///
    /// `X-Forwarded-For` counts if the trusted proxy sent it: each entry is the peer of the proxy that appended it, so
    /// the entries are true as far as all proxies to the right of them are trusted.
    pub(crate) fn client(&self, peer: IpAddr, announced: Option<IpAddr>, headers: &HeaderMap) -> IpAddr {
        let sender = announced.unwrap_or(peer);
        let is_proxy = if announced.is_some() { self.lists(sender) } else { self.trusts(sender) };
        if !is_proxy {
            return sender;
        }
        let mut client = sender;
        let lines = headers.get_all("x-forwarded-for").iter().rev();
        for entry in lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')) {
            let Some(address) = forwarded(entry) else { break };
            client = address;
            if !self.lists(address) {
                break;
            }
        }
        client
    }
}

/// Reads an entry of `X-Forwarded-For`: an address; some proxies add the port.
fn forwarded(entry: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(entry).ok()?.trim();
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse::<IpAddr>().ok().or_else(with_port).or_else(bracketed).map(|address| address.to_canonical())
}

/// Start of a connection from a trusted proxy.
#[derive(Debug, Default)]
pub(crate) struct ProxyPreface {
    /// The client that a PROXY protocol header announced.
    pub(crate) client: Option<IpAddr>,
    /// Bytes after the header that were read already.
    pub(crate) rest: Vec<u8>,
}

impl ProxyPreface {
    /// Reads the PROXY protocol header of a connection, if it starts with one. The first byte may take `first_byte`.
    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin), first_byte: Duration) -> io::Result<Self> {
        let mut read = Vec::new();
        if timeout(first_byte, stream.read_buf(&mut read)).await?? == 0 {
            return Ok(Self::default());
        }
        timeout(PROXY_HEADER_TIMEOUT, async {
            loop {
                if let Some(preface) = Self::parse(&read)? {
                    return Ok(preface);
                }
                if stream.read_buf(&mut read).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        })
        .await?
    }

    /// `None` if more bytes are needed.
    fn parse(read: &[u8]) -> io::Result<Option<Self>> {
        let header = if begins(read, V1_PREFIX) {
            v1_header(read)?
        } else if begins(read, V2_PREFIX) {
            v2_header(read)?
        } else {
            Some((None, 0))
        };
        Ok(header.map(|(client, length)| {
            let client = client.map(|address| address.to_canonical());
            Self { client, rest: read[length..].to_vec() }
        }))
    }
}

/// Returns true if the bytes begin with this prefix, as far as they were read.
fn begins(read: &[u8], prefix: &[u8]) -> bool {
    read.iter().zip(prefix).all(|(one, other)| one == other)
}

/// The client that a header announces, and the length of the header. `None` if more bytes are needed.
type Header = Option<(Option<IpAddr>, usize)>;

/// Reads `PROXY TCP4 <client> <proxy> <port> <port>`, or `PROXY UNKNOWN` for a connection of the proxy itself.
fn v1_header(read: &[u8]) -> io::Result<Header> {
    let Some(end) = read.windows(2).position(|end| end == b"\r\n") else {
        return if read.len() < V1_BYTES_MAX { Ok(None) } else { Err(malformed("has no end")) };
    };
    let text = str::from_utf8(&read[..end]).map_err(|_| malformed("is not text"))?;
    let client = match text.split(' ').collect::<Vec<_>>()[..] {
        ["PROXY", "UNKNOWN", ..] => None,
        ["PROXY", "TCP4" | "TCP6", client, _, _, _] => {
            Some(client.parse().map_err(|_| malformed("has no valid address"))?)
        }
        _ => return Err(malformed("has another form")),
    };
    Ok(Some((client, end + 2)))
}

/// Reads a binary header. It announces no client for a connection of the proxy itself, such as a health check.
fn v2_header(read: &[u8]) -> io::Result<Header> {
    let Some((fixed, rest)) = read.split_at_checked(V2_FIXED_BYTES) else { return Ok(None) };
    let [version_and_command, family, length @ ..] = [fixed[12], fixed[13], fixed[14], fixed[15]];
    let length = usize::from(u16::from_be_bytes(length));
    if V2_FIXED_BYTES + length > PROXY_HEADER_BYTES_MAX {
        return Err(malformed("is too long"));
    }
    let Some(addresses) = rest.get(..length) else { return Ok(None) };
    let missing = || malformed("has no address");
    let client = match (version_and_command, family >> 4) {
        (0x21, 1) => Some(IpAddr::from(*addresses.first_chunk::<4>().ok_or_else(missing)?)),
        (0x21, 2) => Some(IpAddr::from(*addresses.first_chunk::<16>().ok_or_else(missing)?)),
        (0x20 | 0x21, _) => None,
        _ => return Err(malformed("has another version or command")),
    };
    Ok(Some((client, V2_FIXED_BYTES + length)))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the PROXY protocol header {what}"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const PROXY: &str = "10.0.0.1";
    const CLIENT: &str = "203.0.113.7";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    fn trusted(networks: &[&str]) -> TrustedProxies {
        TrustedProxies::Networks(
            networks.iter().map(|text| text.parse().unwrap_or_else(|_| panic!("{text}"))).collect(),
        )
    }

    fn forwarded_for(lines: &[&'static str]) -> HeaderMap {
        lines
            .iter()
            .map(|line| (axum::http::HeaderName::from_static("x-forwarded-for"), HeaderValue::from_static(line)))
            .collect()
    }

    #[test]
    fn forwarded_addresses_count_as_far_as_proxies_are_trusted() {
        let proxies = trusted(&["10.0.0.0/8", "2001:db8::/32"]);
        for (peer, lines, client) in [
            ("198.51.100.9", vec!["203.0.113.7"], "198.51.100.9"),
            (PROXY, vec![], PROXY),
            (PROXY, vec!["203.0.113.7"], CLIENT),
            (PROXY, vec!["1.1.1.1, 203.0.113.7"], CLIENT),
            (PROXY, vec!["1.1.1.1", " 203.0.113.7 , 10.9.9.9"], CLIENT),
            (PROXY, vec!["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            (PROXY, vec!["203.0.113.7:4711"], CLIENT),
            (PROXY, vec!["[2001:dead::1]:4711"], "2001:dead::1"),
            (PROXY, vec!["[2001:dead::1]"], "2001:dead::1"),
            (PROXY, vec!["::ffff:203.0.113.7"], CLIENT),
            (PROXY, vec!["1.1.1.1, unknown"], PROXY),
            (PROXY, vec!["1.1.1.1, unknown, 10.0.0.2"], "10.0.0.2"),
            ("2001:db8::5", vec!["203.0.113.7"], CLIENT),
        ] {
            let found = proxies.client(ip(peer), None, &forwarded_for(&lines));
            assert_eq!(found, ip(client), "{peer} {lines:?}");
        }
    }

    #[test]
    fn every_peer_as_a_proxy_forwards_the_last_address_only() {
        let headers = forwarded_for(&["1.1.1.1, 203.0.113.7"]);
        assert_eq!(TrustedProxies::EveryPeer.client(ip(PROXY), None, &headers), ip(CLIENT));
        assert_eq!(TrustedProxies::EveryPeer.client(ip(PROXY), Some(ip("9.9.9.9")), &headers), ip("9.9.9.9"));
    }

    #[test]
    fn announced_client_counts_before_forwarded_addresses() {
        let (proxies, headers) = (trusted(&[PROXY, "10.0.0.2"]), forwarded_for(&["203.0.113.7"]));
        assert_eq!(proxies.client(ip(PROXY), Some(ip("9.9.9.9")), &headers), ip("9.9.9.9"));
        assert_eq!(proxies.client(ip(PROXY), Some(ip("10.0.0.2")), &headers), ip(CLIENT), "it is a proxy, too");
    }

    #[test]
    fn networks_are_addresses_or_have_a_prefix() {
        for (text, inside) in
            [("10.0.0.1", true), ("10.0.0.0/24", true), ("::ffff:10.0.0.1", true), ("10.0.0.2", false)]
        {
            assert_eq!(trusted(&[text]).trusts(ip(PROXY)), inside, "{text}");
        }
        for bad in ["", "proxy", "10.0.0.1/33", "10.0.0"] {
            assert!(bad.parse::<ProxyNetwork>().is_err(), "{bad}");
        }
    }

    fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap_or_default().to_be_bytes();
        [V2_PREFIX, &[0x20 | command, family], &length, body].concat()
    }

    /// Reads the bytes one by one.
    async fn preface(bytes: &[u8]) -> io::Result<ProxyPreface> {
        let (mut client, mut server) = tokio::io::duplex(1);
        let bytes = bytes.to_vec();
        let sent = tokio::spawn(async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut client, &bytes).await;
            client
        });
        let mut preface = ProxyPreface::read(&mut server, Duration::from_secs(1)).await?;
        drop(sent);
        server.read_to_end(&mut preface.rest).await?;
        Ok(preface)
    }

    #[tokio::test]
    async fn proxy_headers_of_both_versions_are_consumed() {
        let get = b"GET / HTTP/1.1\r\n\r\n";
        let four = [203, 0, 113, 7, 10, 0, 0, 9, 0x12, 0x34, 0, 80];
        let with_tlv = [&four[..], &[0x04, 0, 1, 0xff]].concat();
        for (header, client) in [
            (Vec::new(), None),
            (b"PROXY TCP4 203.0.113.7 10.0.0.9 4660 80\r\n".to_vec(), Some(CLIENT)),
            (b"PROXY TCP6 2001:dead::1 ::1 4660 80\r\n".to_vec(), Some("2001:dead::1")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (binary(1, 0x11, &four), Some(CLIENT)),
            (binary(1, 0x11, &with_tlv), Some(CLIENT)),
            (binary(0, 0x00, &[]), None),
            (binary(1, 0x31, &[0; 216]), None),
        ] {
            let read =
                preface(&[&header[..], get].concat()).await.unwrap_or_else(|error| panic!("{header:?}: {error}"));
            assert_eq!(read.client, client.map(ip), "{header:?}");
            assert_eq!(read.rest, get, "{header:?}");
        }
        let post = b"POST /x HTTP/1.1\r\n\r\nPROXY TCP4";
        assert_eq!(preface(post).await.unwrap_or_default().rest, post);
    }

    #[tokio::test]
    async fn broken_proxy_headers_are_errors() {
        for bad in [
            b"PROXY TCP4 203.0.113.7\r\n".to_vec(),
            b"PROXY nonsense 1 2 3 4\r\n".to_vec(),
            b"PROXY TCP4 203.0.113.7 ".to_vec(),
            binary(1, 0x11, &[1, 2, 3]),
            binary(7, 0x11, &[0; 12]),
            binary(1, 0x11, &vec![0; 60_000])[..PROXY_HEADER_BYTES_MAX + 10].to_vec(),
        ] {
            assert!(preface(&bad).await.is_err(), "{bad:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn proxy_header_has_a_time_limit() {
        let (mut client, mut server) = tokio::io::duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut client, b"PROXY TCP4 ").await.unwrap_or_default();
        let began = tokio::time::Instant::now();
        let error = ProxyPreface::read(&mut server, Duration::from_secs(10)).await.err();
        assert_eq!(error.map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
        assert_eq!(began.elapsed(), PROXY_HEADER_TIMEOUT);
    }
}
