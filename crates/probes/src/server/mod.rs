//! Requests that the kernel's NFS server serves, versions 3 and 4, one event per request: how long it waited for a thread, was executed and sent.

use std::net::{IpAddr, Ipv6Addr};

use model::{Code, Detail, Direction, Event, Level, Protocol, Served};

use crate::{
    columns::{self, EventCell, EventColumn},
    generated::{event, probe_id, record},
    nfs::status,
    spec::{RequiredModule, Rung, Spec},
};

pub(crate) static SPEC: Spec = Spec {
    name: PROTOCOL.name,
    protocol: &PROTOCOL,
    id: probe_id::PROBE_SERVER,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/server.bpf.o")),
    // Most hooks are in sunrpc, which NFS clients load, too; the types are nfsd's.
    module: Some(RequiredModule {
        name: "nfsd",
        load: "start the NFS server, or `modprobe nfsd`",
        hooks: Some("sunrpc"),
    }),
    rungs: &[Rung {
        via: "tp_btf",
        required: &["tp_arrived", "tp_received", "tp_read", "tp_executed", "tp_sent"],
        optional: &["fexit_exported"],
        without: "which export a request is for",
    }],
    detail: |raw| Detail::Served(Served { xid: raw.message as u32, client: client(raw) }),
    recorded,
    columns: COLUMNS,
    line: |event, line| {
        if let Detail::Served(served) = event.detail {
            line.xid = Some(served.xid.into());
            line.client = served.client.map(|client| client.to_string());
        }
    },
    ..Spec::BASE
};

/// The kernel side stores an address of version 6 where other probes store a file's name.
fn client(raw: &event) -> Option<IpAddr> {
    let known = || Served::address(u32::try_from(raw.connection).ok()?);
    known().or_else(|| {
        let mut octets = [0; 16];
        octets.iter_mut().zip(&raw.file).for_each(|(octet, byte)| *octet = byte.cast_unsigned());
        Some(IpAddr::V6(Ipv6Addr::from(octets))).filter(|address| !address.is_unspecified())
    })
}

/// A record has the request's number where records of other probes have retransmissions.
fn recorded(raw: &record, event: &mut Event) {
    event.network.retransmits = 0;
    event.detail = Detail::Served(Served { xid: raw.retransmits, client: Served::address(raw.connection) });
}

/// Operations by the names that the NFS client has for its calls (`nfs` here), as far as the request tells. The code is the number in version 4
/// (RFC 8881 16.2, RFC 7862, RFC 8276); behind those is what only version 3 has: `enum operation` of operation.h.
pub static PROTOCOL: Protocol = Protocol {
    name: "server",
    operations: &[
        "NULL",
        "OTHER",
        "COMPOUND",
        "ACCESS",
        "CLOSE",
        "COMMIT",
        "CREATE",
        "DELEGPURGE",
        "DELEGRETURN",
        "GETATTR",
        "GETFH",
        "LINK",
        "LOCK",
        "LOCKT",
        "LOCKU",
        "LOOKUP",
        "LOOKUPP",
        "NVERIFY",
        "OPEN",
        "OPENATTR",
        "OPEN_CONFIRM",
        "OPEN_DOWNGRADE",
        "PUTFH",
        "PUTPUBFH",
        "LOOKUP_ROOT",
        "READ",
        "READDIR",
        "READLINK",
        "REMOVE",
        "RENAME",
        "RENEW",
        "RESTOREFH",
        "SAVEFH",
        "SECINFO",
        "SETATTR",
        "SETCLIENTID",
        "SETCLIENTID_CONFIRM",
        "VERIFY",
        "WRITE",
        "RELEASE_LOCKOWNER",
        "BACKCHANNEL_CTL",
        "BIND_CONN_TO_SESSION",
        "EXCHANGE_ID",
        "CREATE_SESSION",
        "DESTROY_SESSION",
        "FREE_STATEID",
        "GET_DIR_DELEGATION",
        "GETDEVICEINFO",
        "GETDEVICELIST",
        "LAYOUTCOMMIT",
        "LAYOUTGET",
        "LAYOUTRETURN",
        "SECINFO_NO_NAME",
        "SEQUENCE",
        "SET_SSV",
        "TEST_STATEID",
        "WANT_DELEGATION",
        "DESTROY_CLIENTID",
        "RECLAIM_COMPLETE",
        "ALLOCATE",
        "COPY",
        "COPY_NOTIFY",
        "DEALLOCATE",
        "IO_ADVISE",
        "LAYOUTERROR",
        "LAYOUTSTATS",
        "OFFLOAD_CANCEL",
        "OFFLOAD_STATUS",
        "READ_PLUS",
        "SEEK",
        "WRITE_SAME",
        "CLONE",
        "GETXATTR",
        "SETXATTR",
        "LISTXATTRS",
        "REMOVEXATTR",
        // Only in version 3
        "MKDIR",
        "SYMLINK",
        "MKNOD",
        "RMDIR",
        "READDIRPLUS",
        "FSSTAT",
        "FSINFO",
        "PATHCONF",
    ],
    level: Level::Served,
    direction: |name| match name {
        "READ" | "READ_PLUS" => Some(Direction::Read),
        "WRITE" => Some(Direction::Written),
        _ => None,
    },
    status_name: status::name,
    status_named: status::named,
    status_example: "NFS4ERR_STALE",
    status_errno: status::errno,
    ordinary: ORDINARY,
    later: status::LATER,
    repeated: status::REPEATED,
    ..Protocol::BY_ERRNO
};

/// Results that are ordinary for a client are ordinary for its server, too.
const ORDINARY: &[Code] = status::ORDINARY;

const COLUMNS: &[EventColumn] = &[
    columns::TIME,
    EventColumn::operation(20),
    columns::DURATION,
    EventColumn::new("WAIT", -7, EventCell::Queue),
    EventColumn::new("EXECUTE", -7, EventCell::Wire),
    EventColumn::new("SEND", -7, EventCell::Deliver),
    EventColumn::bytes(-9),
    EventColumn::new("STATUS", 24, EventCell::Status),
    EventColumn::new("XID", 8, EventCell::Own(|event| format!("{:08x}", event.detail.message()))),
    EventColumn::new("CLIENT", 24, EventCell::Own(shown_client)),
    EventColumn::mount(0),
];

fn shown_client(event: &Event) -> String {
    match event.detail {
        Detail::Served(Served { client: Some(client), .. }) => client.to_string(),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode::decode_event, decode::decode_record, generated::Plain as _};

    #[test]
    fn codes_are_those_of_version_4_and_of_the_kernel_side() {
        // RFC 8881 16.2.2, RFC 7862 11, RFC 8276 8.3; and the first and the last of those that are version 3's
        let known = [
            (3, "ACCESS"),
            (9, "GETATTR"),
            (18, "OPEN"),
            (25, "READ"),
            (38, "WRITE"),
            (53, "SEQUENCE"),
            (60, "COPY"),
            (75, "REMOVEXATTR"),
            (76, "MKDIR"),
            (83, "PATHCONF"),
        ];
        for (code, name) in known {
            assert_eq!(PROTOCOL.operations.get(code).copied(), Some(name));
        }
        assert_eq!(PROTOCOL.operations.len(), 84);
        let mut names = PROTOCOL.operations.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROTOCOL.operations.len(), "no name is there twice");
    }

    #[test]
    fn a_record_names_client_and_request() {
        let raw = record {
            end: 9,
            probe: probe_id::PROBE_SERVER.0 as u8,
            operation: 38,
            retransmits: 0x0102_0304,
            connection: 0x0a01_0001,
            ..record::default()
        };
        let event = decode_record(raw.as_bytes()).unwrap();
        assert_eq!(event.operation.name(), "WRITE");
        assert_eq!(event.network.retransmits, 0);
        let client = Some("10.1.0.1".parse().unwrap());
        assert_eq!(event.detail, Detail::Served(Served { xid: 0x0102_0304, client }));
    }

    #[test]
    fn an_event_has_an_address_of_either_version_and_a_record_the_number_of_it() {
        let address: IpAddr = "2001:db8::17".parse().unwrap();
        let mut raw = event { probe: probe_id::PROBE_SERVER.0 as u8, operation: 25, message: 7, ..event::default() };
        raw.connection = Served::client_number(address).into();
        let IpAddr::V6(v6) = address else { panic!() };
        raw.file.iter_mut().zip(v6.octets()).for_each(|(to, from)| *to = from.cast_signed());
        let event = decode_event(raw.as_bytes()).unwrap();
        assert_eq!(event.detail, Detail::Served(Served { xid: 7, client: Some(address) }));
        assert!(Served::client_number(address) >= 0xf000_0000);
        assert_eq!(Served::address(Served::client_number(address)), None);
        let mapped: IpAddr = "::ffff:10.1.0.1".parse().unwrap();
        assert_eq!(Served::client_number(mapped), 0x0a01_0001);
    }
}
