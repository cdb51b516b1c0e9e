//! The reasons for which two files are not joined.

use std::{error, fmt, net::IpAddr};

use crate::units::{counted, span};

/// Why the two ends cannot be joined. Its text also says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndsRefusal {
    /// The client's end has no request with a number.
    NoRequests,
    /// The server's end has no request that it served.
    NothingServed,
    /// The server has served none of the client's addresses.
    Strangers {
        /// The client's addresses.
        addresses: Vec<IpAddr>,
        /// A few of the addresses that the server has served.
        served: Vec<String>,
    },
    /// None of the client's requests is among those of the server.
    NothingCommon {
        /// Number of the client's requests.
        asked: u64,
        /// Gap between the two ends' requests by their clocks, nanoseconds; 0 if their times overlap.
        apart: u64,
    },
    /// Several clients have used the same call numbers.
    TwoClients {
        /// Number of the client's requests that match more than one of the server's.
        ambiguous: u64,
        /// Number of the client's requests.
        asked: u64,
    },
    /// No difference of the clocks fits enough of the pairs.
    OtherTimes {
        /// Number of pairs that fit the best difference.
        fitting: u64,
        /// Number of all pairs.
        all: u64,
    },
    /// The server says that it had requests for longer than the client waited for them.
    TooLong {
        /// Number of these requests.
        requests: u64,
        /// Number of all requests that both ends have seen.
        all: u64,
        /// The largest excess, nanoseconds.
        by: u64,
    },
}

impl EndsRefusal {
    /// The name in machine-readable output.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoRequests => "no_requests",
            Self::NothingServed => "nothing_served",
            Self::Strangers { .. } => "strangers",
            Self::NothingCommon { .. } => "nothing_common",
            Self::TwoClients { .. } => "two_clients",
            Self::OtherTimes { .. } => "other_times",
            Self::TooLong { .. } => "too_long",
        }
    }
}

impl fmt::Display for EndsRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRequests => out.write_str(
                "the client's bundle has no slow NFS requests with numbers; give the bundle of an incident of the nfs probe, the client's first",
            ),
            Self::NothingServed => out.write_str(
                "the server's file has no requests that it served; there, Plumbline's probe `server` must run (`plumbline doctor server`), and the file be \
                 a snapshot or recording of that time",
            ),
            Self::Strangers { addresses, served } => {
                let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                write!(
                    out,
                    "the two ends do not belong together: the server served {}, but no client at {addresses}; behind a router that translates addresses \
                     (NAT), requests cannot be told apart",
                    served.join(", ")
                )
            }
            Self::NothingCommon { asked, apart } => {
                write!(out, "the two ends do not belong together: the server has none of {} of the client", counted(*asked, "request"))?;
                if *apart > 0 {
                    write!(out, "; their times are {} apart; ", span(*apart))?;
                } else {
                    out.write_str("; ")?;
                }
                out.write_str("take the server's snapshot while the client's incident lasts, or a recording that covers it")
            }
            Self::TwoClients { ambiguous, asked } => write!(
                out,
                "several clients have one address: {ambiguous} of {} of the client can be more than one of the server's",
                counted(*asked, "request")
            ),
            Self::OtherTimes { fitting, all } => write!(
                out,
                "the two ends do not belong together: of {all} requests with the same numbers, only {fitting} fit one clock offset, so the server's are of \
                 another time; take the server's snapshot while the client's incident lasts"
            ),
            Self::TooLong { requests, all, by } => write!(
                out,
                "the ends contradict each other: the server says that {requests} of {} were there for longer than the client waited for them, by up to {}; at \
                 least one of the files is wrong",
                counted(*all, "request"),
                span(*by)
            ),
        }
    }
}

impl error::Error for EndsRefusal {}
