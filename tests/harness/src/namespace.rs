//! A network namespace with one link to the rest of the machine, which can be cut. Needs Linux, `ip`, and the right to administer
//! the network.

use std::net::Ipv4Addr;
use std::process::Command;

/// First address of a range for tests of networks (RFC 2544), which has [`NETS`] nets of four addresses.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const NETS: u32 = 1 << 15;

/// A namespace. It is deleted, with its link, when it is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    /// Address of this end of the link.
    pub outside: Ipv4Addr,
    /// Address of the end in the namespace.
    pub inside: Ipv4Addr,
}

impl Namespace {
    /// Creates the namespace of this process. `None` where this is not permitted.
    pub fn create() -> Option<Self> {
        let id = std::process::id();
        let net = FIRST + id % NETS * 4;
        let namespace = Self { name: format!("pf{id}"), outside: (net + 1).into(), inside: (net + 2).into() };
        let Self { name, outside, inside } = &namespace;
        if let Err(error) = ip(&format!("netns add {name}")) {
            assert!(error.contains("not permitted") || error.contains("denied"), "{error}");
            return None;
        }
        let steps = [
            format!("link add {name} type veth peer name inside netns {name}"),
            format!("address add {outside}/30 dev {name}"),
            format!("link set {name} up"),
            format!("-netns {name} address add {inside}/30 dev inside"),
            format!("-netns {name} link set inside up"),
            format!("-netns {name} link set lo up"),
        ];
        for step in &steps {
            ip(step).unwrap();
        }
        Some(namespace)
    }

    /// Connects or cuts the link. Nothing closes the connections over it.
    pub fn set_link(&self, is_up: bool) {
        ip(&format!("link set {} {}", self.name, if is_up { "up" } else { "down" })).unwrap();
    }

    /// The command, with its arguments and variables, in this namespace.
    pub fn enter(&self, command: &Command) -> Command {
        let mut entered = Command::new("ip");
        entered.args(["netns", "exec", &self.name]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => entered.env(name, value),
                None => entered.env_remove(name),
            };
        }
        entered
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The link ends with one of its ends. A process that still runs in the namespace would keep it.
        for step in ["link delete", "netns delete"] {
            if let Err(error) = ip(&format!("{step} {}", self.name)) {
                eprintln!("{error}");
            }
        }
    }
}

/// Runs `ip` with these arguments.
fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    let error = || format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim());
    output.status.success().then_some(()).ok_or_else(error)
}
