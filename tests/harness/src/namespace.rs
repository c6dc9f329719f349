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
    /// Creates the namespace of this process. `None` where this is not permitted or `ip` is missing.
    pub fn create() -> Option<Self> {
        let id = std::process::id();
        let net = FIRST + id % NETS * 4;
        let namespace = Self { name: format!("pf{id}"), outside: (net + 1).into(), inside: (net + 2).into() };
        let Self { name, outside, inside } = &namespace;
        let steps = [
            format!("netns add {name}"),
            format!("link add {name} type veth peer name inside netns {name}"),
            format!("address add {outside}/30 dev {name}"),
            format!("link set {name} up"),
            format!("-netns {name} address add {inside}/30 dev inside"),
            format!("-netns {name} link set inside up"),
            format!("-netns {name} link set lo up"),
        ];
        steps.iter().all(|step| ip(step)).then_some(namespace)
    }

    /// Connects or cuts the link. Nothing closes the connections over it.
    pub fn set_link(&self, is_up: bool) {
        assert!(ip(&format!("link set {} {}", self.name, if is_up { "up" } else { "down" })));
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
        ip(&format!("link delete {}", self.name));
        ip(&format!("netns delete {}", self.name));
    }
}

/// Runs `ip` with these arguments. Returns true if it succeeds.
fn ip(arguments: &str) -> bool {
    match Command::new("ip").args(arguments.split(' ')).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim());
            false
        }
        Err(error) => {
            eprintln!("ip {arguments}: {error}");
            false
        }
    }
}
