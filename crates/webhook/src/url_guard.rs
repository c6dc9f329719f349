//! Webhook URL policy: HTTPS to public addresses. The URL is checked when it is set and the address again at every
//! connection, so that a name that later resolves to an internal address (DNS rebinding) reaches nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Maximum length of a webhook URL, characters.
pub const URL_CHARS_MAX: usize = 2_048;
/// Maximum bytes of a DNS name.
const NAME_BYTES_MAX: usize = 253;
/// Maximum bytes of a part of a DNS name.
const LABEL_BYTES_MAX: usize = 63;

/// Azure's metadata and DNS address for virtual machines: public by number, internal in effect.
const AZURE_METADATA: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// Set of allowed URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlPolicy {
    /// HTTPS to public addresses.
    Production,
    /// Also plain HTTP and loopback addresses.
    Sandbox,
}

/// Reasons for a rejected URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlRejection {
    /// It does not parse, or is too long.
    #[error("must be an absolute URL of at most {URL_CHARS_MAX} characters")]
    Malformed,
    /// It is not HTTPS.
    #[error("must start with https://")]
    NotHttps,
    /// It contains a user name or password.
    #[error("must not contain a user name or password")]
    Credentials,
    /// It contains a fragment.
    #[error("must not contain a fragment")]
    Fragment,
    /// Its host is neither an address nor a DNS name.
    #[error("must have a DNS name or an IP address as its host")]
    Host,
    /// Its address is not public.
    #[error("must use a public address")]
    NotPublic,
}

impl UrlRejection {
    /// Stable code of the rejection.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Malformed => "url_malformed",
            Self::NotHttps => "url_not_https",
            Self::Credentials => "url_credentials",
            Self::Fragment => "url_fragment",
            Self::Host => "url_host",
            Self::NotPublic => "url_not_public",
        }
    }
}

/// Checks a URL without resolving its host name. The resolver checks the addresses at each connection.
pub fn check(policy: UrlPolicy, text: &str) -> Result<Url, UrlRejection> {
    if text.len() > URL_CHARS_MAX {
        return Err(UrlRejection::Malformed);
    }
    let url = Url::parse(text).map_err(|_| UrlRejection::Malformed)?;
    match (url.scheme(), policy) {
        ("https", _) | ("http", UrlPolicy::Sandbox) => {}
        _ => return Err(UrlRejection::NotHttps),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlRejection::Credentials);
    }
    if url.fragment().is_some() {
        return Err(UrlRejection::Fragment);
    }
    let allowed = match url.host().ok_or(UrlRejection::Malformed)? {
        Host::Ipv4(address) => policy.allows(address.into()),
        Host::Ipv6(address) => policy.allows(address.into()),
        Host::Domain(name) if !is_dns_name(name) => return Err(UrlRejection::Host),
        Host::Domain(name) => policy == UrlPolicy::Sandbox || !is_inside_name(name),
    };
    if allowed { Ok(url) } else { Err(UrlRejection::NotPublic) }
}

/// Returns `true` if the name is a host name that DNS can have (RFC 1123), with or without the dot of the root.
fn is_dns_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        let letters = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=LABEL_BYTES_MAX).contains(&label.len()) && letters && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
}

/// Returns `true` if the name never belongs to a public host.
fn is_inside_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let reserved = ["localhost", "local", "internal", "intranet", "lan", "home.arpa", "test", "invalid", "onion"];
    !name.contains('.') || reserved.iter().any(|end| name == *end || name.ends_with(&format!(".{end}")))
}

impl UrlPolicy {
    /// Returns `true` if connections to the address are allowed.
    pub fn allows(self, address: IpAddr) -> bool {
        is_public(address) || (self == Self::Sandbox && address.to_canonical().is_loopback())
    }
}

fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Returns `true` if the address is outside every block of the IANA special-purpose registry that is not globally
/// reachable.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b));
    !special && address != AZURE_METADATA
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // Addresses with an embedded IPv4 address are judged by that address.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        // Global unicast, except documentation, benchmarking, Teredo and other protocol assignments.
        [first, second, ..] => {
            (0x2000..0x4000).contains(&first)
                && !(first == 0x2001 && (second < 0x0200 || second == 0x0db8))
                && !(first == 0x3fff && second < 0x1000)
        }
    }
}

/// Resolves names with the system resolver and drops addresses that the policy does not allow.
#[derive(Clone, Copy, Debug)]
pub struct GuardedResolver {
    policy: UrlPolicy,
}

impl GuardedResolver {
    /// Creates a resolver for `policy`.
    pub const fn new(policy: UrlPolicy) -> Self {
        Self { policy }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|address| policy.allows(address.ip())).collect();
            if allowed.is_empty() {
                return Err("the name has no public address".into());
            }
            let addresses: Addrs = Box::new(allowed.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn production_accepts_only_public_https() {
        let refused = |text: &str| check(UrlPolicy::Production, text).unwrap_err();
        assert!(check(UrlPolicy::Production, "https://psp.example.com/hooks?a=b").is_ok());
        assert!(check(UrlPolicy::Production, "https://93.184.216.34/").is_ok());
        assert!(check(UrlPolicy::Production, "https://[2606:4700::1111]:8443/").is_ok());
        assert_eq!(refused("http://psp.example.com/"), UrlRejection::NotHttps);
        assert_eq!(refused("ftp://psp.example.com/"), UrlRejection::NotHttps);
        assert_eq!(refused("hooks"), UrlRejection::Malformed);
        assert_eq!(refused(&format!("https://a.example.com/{}", "x".repeat(3_000))), UrlRejection::Malformed);
        assert_eq!(refused("https://u:p@psp.example.com/"), UrlRejection::Credentials);
        assert_eq!(refused("https://psp.example.com/#x"), UrlRejection::Fragment);
        assert!(check(UrlPolicy::Production, "https://b\u{fc}cher.example.com./").is_ok());
        let long = format!("{}.example.com", "a".repeat(64));
        let longer = format!("{}example.com", "abcdefgh.".repeat(28));
        for host in ["a_b.example.com", "-a.example.com", "a-.example.com", "a..example.com", &long, &longer] {
            assert_eq!(refused(&format!("https://{host}/")), UrlRejection::Host, "{host}");
        }
        let names = "localhost LOCALHOST. db a.internal";
        let v4 = "127.0.0.1 2130706433 0x7f.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 168.63.129.16 100.64.0.1 \
                  100.100.100.200 0.0.0.0 198.18.0.1 224.0.0.1 255.255.255.255";
        let v6 = "[::1] [::] [::ffff:127.0.0.1] [::ffff:10.0.0.1] [fe80::1] [fc00::1] [ff02::1] [64:ff9b::7f00:1] \
                  [2002:7f00:1::] [2001:db8::1] [fd00:ec2::254]";
        for host in [names, v4, v6].into_iter().flat_map(str::split_whitespace) {
            assert_eq!(refused(&format!("https://{host}/")), UrlRejection::NotPublic, "{host}");
        }
    }

    #[test]
    fn sandbox_accepts_loopback_and_plain_http_but_no_private_network() {
        for text in ["http://127.0.0.1:8080/sandbox/inbox/a", "http://localhost:1/", "https://[::1]/"] {
            assert!(check(UrlPolicy::Sandbox, text).is_ok(), "{text}");
        }
        for text in ["http://10.0.0.1/", "http://169.254.169.254/latest/meta-data"] {
            assert_eq!(check(UrlPolicy::Sandbox, text).unwrap_err(), UrlRejection::NotPublic, "{text}");
        }
    }

    #[tokio::test]
    async fn production_does_not_resolve_names_of_loopback() {
        let resolve = |policy| GuardedResolver::new(policy).resolve("localhost".parse().unwrap());
        assert!(resolve(UrlPolicy::Production).await.is_err());
        assert!(resolve(UrlPolicy::Sandbox).await.unwrap().next().is_some());
    }
}
