//! Where the routes of a network namespace lead, by rtnetlink(7).

use std::net::IpAddr;

use super::{Asked, Netlink, attribute, u32_at};

// include/uapi/linux/rtnetlink.h
const RTM_GETROUTE: u16 = 26;
const RTMSG: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

impl Netlink {
    /// The index of the interface that leads to an address; `None` without a route. For a socket of `SockProtocol::NetlinkRoute`.
    pub fn interface_to(&self, address: IpAddr) -> Option<u32> {
        let (family, address) = match address {
            IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
        };
        let bits = u8::try_from(address.len() * 8).ok()?;
        let length = u16::try_from(4 + address.len()).ok()?;
        let mut request = vec![family, bits];
        request.resize(RTMSG, 0);
        request.extend(length.to_ne_bytes());
        request.extend(RTA_DST.to_ne_bytes());
        request.extend(address);
        let mut found = None;
        let mut see = |message: &[u8]| {
            let attributes = message.get(RTMSG..).unwrap_or_default();
            found = attribute(attributes, RTA_OIF).and_then(|index| u32_at(index, 0));
            false
        };
        self.ask(RTM_GETROUTE, Asked::One, &request, &mut see).ok()?;
        found
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::SockProtocol;

    use super::*;

    #[test]
    fn the_kernel_tells_which_interface_leads_to_an_address() {
        let netlink = Netlink::of_process(std::process::id(), SockProtocol::NetlinkRoute).unwrap();
        let own = netlink.interface_to(IpAddr::from([127, 0, 0, 1]));
        assert_eq!(own, Some(1), "the loopback interface is the first of each namespace");
    }
}
