//! What is asked of a socket, as the kernel takes it: a list of options.
//!
//! [`Requested`] is what the user said; [`Wish`] is one `setsockopt(2)` of it, made ready, with the words for its
//! failure. Which of them apply depends on the protocol and the address family: TCP's own options are left out for UDP
//! and the other way round, and an IPv6 socket gets IPv4's option too where it may carry IPv4. The list is what a
//! [`ConnectPlan`](super::ConnectPlan) sets for every connection without making it anew.

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use haul_stats::ByteCount;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Type};

use crate::error::{Named as _, Result};
use crate::{link, sys};

/// What the user asked of each socket; what is unset is left to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requested {
    /// Send buffer, as the application sees it (the kernel reserves twice that).
    pub sndbuf: Option<ByteCount>,
    /// Receive buffer, likewise.
    pub rcvbuf: Option<ByteCount>,
    /// TCP: `TCP_NODELAY`, send small messages at once.
    pub nodelay: bool,
    /// TCP: congestion control by the kernel's name for it.
    pub cc: Option<String>,
    /// TCP: `TCP_MAXSEG`, the largest segment, before TCP's own options are taken from it.
    pub mss: Option<u32>,
    /// `IP_TOS` or `IPV6_TCLASS`: DSCP in the upper six bits.
    pub tos: Option<u8>,
    /// TCP: `TCP_USER_TIMEOUT`, give up on a peer that acknowledges nothing for so long.
    pub user_timeout: Option<Duration>,
    /// `SO_BINDTODEVICE`: send and receive through this device only.
    pub bind_device: Option<String>,
    /// `SO_MARK`: the mark that routing rules and filters see.
    pub mark: Option<u32>,
    /// `SO_BUSY_POLL`: ask the device for packets for so long before sleeping, in µs.
    pub busy_poll_us: Option<u32>,
    /// UDP: `IP_MTU_DISCOVER`. On, a datagram larger than the path's MTU is refused; off, it is cut into fragments.
    pub dont_fragment: Option<bool>,
}

/// One option to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    level: libc::c_int,
    name: libc::c_int,
    value: Vec<u8>,
    /// As it completes "cannot …", with `object`.
    operation: &'static str,
    object: String,
}

impl Wish {
    /// An option that is a number. More than an int holds would arrive as a negative; the largest int meets the
    /// kernel's own limit.
    fn number(
        (level, name): (libc::c_int, libc::c_int),
        value: impl Into<u64>,
        operation: &'static str,
        object: impl Into<String>,
    ) -> Self {
        let value = libc::c_int::try_from(value.into()).unwrap_or(libc::c_int::MAX);
        Self::bytes((level, name), &value.to_ne_bytes(), operation, object)
    }

    /// Any other option.
    pub(super) fn bytes(
        (level, name): (libc::c_int, libc::c_int),
        value: &[u8],
        operation: &'static str,
        object: impl Into<String>,
    ) -> Self {
        Self { level, name, value: value.to_vec(), operation, object: object.into() }
    }

    /// A switch turned on.
    pub(super) fn switch(option: (libc::c_int, libc::c_int), object: &str) -> Self {
        Self::number(option, 1_u32, "set", object)
    }

    /// Sets it, and nothing else.
    #[inline]
    pub(super) fn set_raw(&self, socket: BorrowedFd<'_>) -> std::io::Result<()> {
        sys::set_option_bytes(socket, self.level, self.name, &self.value)
    }

    /// Sets it; a failure says what to do.
    pub(super) fn set(&self, socket: BorrowedFd<'_>) -> Result<()> {
        let set = self.set_raw(socket).named(self.operation, || self.object.clone());
        set.map_err(|error| match error.errno().and_then(|errno| self.remedy(errno)) {
            Some(remedy) => error.with_hint(remedy),
            None => error,
        })
    }

    /// What the user can do about a refusal.
    fn remedy(&self, errno: i32) -> Option<Cow<'static, str>> {
        let sysctl = |key: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{key}"));
            text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
        };
        match (self.level, self.name, errno) {
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION, libc::ENOENT) => {
                Some(format!("this kernel has {}", sysctl("tcp_available_congestion_control")).into())
            }
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION, libc::EPERM) => {
                let allowed = sysctl("tcp_allowed_congestion_control");
                let widens = "net.ipv4.tcp_allowed_congestion_control widens it";
                Some(format!("without CAP_NET_ADMIN only these are allowed: {allowed}; {widens}").into())
            }
            (libc::SOL_SOCKET, libc::SO_BINDTODEVICE, libc::ENODEV) => Some(link::device_names().into()),
            (libc::SOL_SOCKET, libc::SO_BINDTODEVICE, libc::EPERM) => {
                Some("it takes CAP_NET_RAW in this network namespace: run as root".into())
            }
            (libc::SOL_SOCKET, libc::SO_MARK, libc::EPERM) => {
                Some("it takes CAP_NET_ADMIN in this network namespace: run as root".into())
            }
            (libc::SOL_SOCKET, libc::SO_BUSY_POLL, libc::EPERM) => Some(
                "without CAP_NET_ADMIN it may not be longer than net.core.busy_read: raise that, or run as root"
                    .into(),
            ),
            _ => None,
        }
    }
}

impl Requested {
    /// Sets everything requested that has a meaning for the protocol of an open socket, TCP or UDP. An accepted
    /// connection took over only what its listener had. Buffers are clamped by the kernel in silence:
    /// [`SocketFacts::clamped`](super::SocketFacts::clamped) tells.
    pub fn apply_to(&self, socket: &impl AsFd) -> Result<()> {
        let options = SockRef::from(socket);
        let domain = options.domain().named("read the family of", || "a socket".into())?;
        let kind = options.r#type().named("read the type of", || "a socket".into())?;
        self.wishes(domain, kind).iter().try_for_each(|wish| wish.set(socket.as_fd()))
    }

    /// The options to set on a socket of this family and type.
    pub(super) fn wishes(&self, domain: Domain, kind: Type) -> Vec<Wish> {
        let own = if kind == Type::STREAM { self.tcp() } else { self.udp(domain) };
        self.common(domain).into_iter().chain(own).collect()
    }

    fn common(&self, domain: Domain) -> Vec<Wish> {
        let mut wishes = Vec::new();
        if let Some(name) = &self.bind_device {
            // Of a longer name the kernel takes the beginning, in silence, and with an empty one it unbinds.
            let possible = (1..libc::IFNAMSIZ).contains(&name.len()) && !name.contains('\0');
            let value = if possible { name.as_bytes() } else { NO_DEVICE };
            let option = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
            wishes.push(Wish::bytes(option, value, "bind a socket to the device", name));
        }
        if let Some(mark) = self.mark {
            // All 32 bits count.
            let (option, object) = ((libc::SOL_SOCKET, libc::SO_MARK), format!("{mark:#x}"));
            wishes.push(Wish::bytes(option, &mark.to_ne_bytes(), "set the mark to", object));
        }
        for (name, size, operation) in [
            (libc::SO_SNDBUF, self.sndbuf, "set the send buffer to"),
            (libc::SO_RCVBUF, self.rcvbuf, "set the receive buffer to"),
        ] {
            if let Some(size) = size {
                wishes.push(Wish::number((libc::SOL_SOCKET, name), size.0, operation, size.to_string()));
            }
        }
        if let Some(length) = self.busy_poll_us {
            let option = (libc::SOL_SOCKET, libc::SO_BUSY_POLL);
            wishes.push(Wish::number(option, length, "set busy polling to", format!("{length} µs")));
        }
        if let Some(tos) = self.tos {
            let object = format!("{tos:#04x}");
            if domain == Domain::IPV6 {
                let option = (libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
                wishes.push(Wish::number(option, tos, "set the traffic class to", object.clone()));
            }
            let option = (libc::IPPROTO_IP, libc::IP_TOS);
            wishes.push(Wish::number(option, tos, "set the type of service to", object));
        }
        wishes
    }

    fn tcp(&self) -> Vec<Wish> {
        let nodelay = Wish::switch((libc::IPPROTO_TCP, libc::TCP_NODELAY), "TCP_NODELAY");
        let cc = self.cc.as_ref().map(|name| {
            let option = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
            Wish::bytes(option, name.as_bytes(), "set the congestion control to", name)
        });
        let mss = self.mss.map(|mss| {
            let option = (libc::IPPROTO_TCP, libc::TCP_MAXSEG);
            Wish::number(option, mss, "set the segment size to", mss.to_string())
        });
        let nodelay = self.nodelay.then_some(nodelay);
        [nodelay, cc, mss, self.user_timeout.map(user_timeout)].into_iter().flatten().collect()
    }

    fn udp(&self, domain: Domain) -> Vec<Wish> {
        let Some(on) = self.dont_fragment else { return Vec::new() };
        // The values are the same for IPv6.
        let value = if on { libc::IP_PMTUDISC_DO } else { libc::IP_PMTUDISC_DONT };
        let object = if on { "off" } else { "on" };
        let set = |option| Wish::number(option, value.unsigned_abs(), "switch fragmentation", object);
        let v6 = (domain == Domain::IPV6).then(|| set((libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)));
        v6.into_iter().chain([set((libc::IPPROTO_IP, libc::IP_MTU_DISCOVER))]).collect()
    }
}

/// No device can have this name.
const NO_DEVICE: &[u8] = b"/";

fn user_timeout(length: Duration) -> Wish {
    let ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let option = (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
    Wish::number(option, ms, "set TCP_USER_TIMEOUT to", format!("{ms} ms"))
}

/// Lets a connection die when the peer acknowledges nothing for `length`, also while data wait to be sent.
pub fn set_user_timeout(socket: &impl AsFd, length: Duration) -> Result<()> {
    user_timeout(length).set(socket.as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_the_other_protocol_is_left_out_and_ipv6_gets_both_families() {
        let all = Requested {
            sndbuf: Some(ByteCount(1)),
            rcvbuf: Some(ByteCount(2)),
            nodelay: true,
            cc: Some("reno".to_owned()),
            mss: Some(1000),
            tos: Some(0x10),
            user_timeout: Some(Duration::from_secs(1)),
            bind_device: Some("lo".to_owned()),
            mark: Some(u32::MAX),
            busy_poll_us: Some(50),
            dont_fragment: Some(true),
        };
        let levels = |domain, kind| {
            let wishes = all.wishes(domain, kind);
            let of = |level| wishes.iter().filter(|wish| wish.level == level).count();
            [libc::SOL_SOCKET, libc::IPPROTO_TCP, libc::IPPROTO_IP, libc::IPPROTO_IPV6].map(of)
        };
        assert_eq!(levels(Domain::IPV4, Type::STREAM), [5, 4, 1, 0]);
        assert_eq!(levels(Domain::IPV6, Type::STREAM), [5, 4, 1, 1]);
        assert_eq!(levels(Domain::IPV4, Type::DGRAM), [5, 0, 2, 0]);
        assert_eq!(levels(Domain::IPV6, Type::DGRAM), [5, 0, 2, 2]);
        assert_eq!(Requested::default().wishes(Domain::IPV6, Type::STREAM), []);
        let mark = all.wishes(Domain::IPV4, Type::DGRAM).swap_remove(1);
        assert_eq!((mark.name, mark.value.as_slice()), (libc::SO_MARK, &[0xff; 4][..]));
    }

    #[test]
    fn a_refusal_names_the_right_that_is_missing() {
        let requested =
            Requested { mark: Some(1), bind_device: Some("x".to_owned()), ..Requested::default() };
        let wishes = requested.wishes(Domain::IPV4, Type::DGRAM);
        let remedies: Vec<_> = wishes.iter().map(|wish| wish.remedy(libc::EPERM).expect("one")).collect();
        assert!(remedies[0].contains("CAP_NET_RAW") && remedies[1].contains("CAP_NET_ADMIN"), "{remedies:?}");
        assert_eq!(wishes[1].remedy(libc::EINVAL), None);
    }
}
