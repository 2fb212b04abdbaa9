//! The interface `org.dunnage.shim` as the varlink crate sees it: its types, its errors and its client, all generated.

pub use varlink::{Connection, ErrorKind as ServiceError, OrgVarlinkServiceClient, OrgVarlinkServiceInterface};
pub use varlink_parser::IDL;

include!(concat!(env!("OUT_DIR"), "/shim.rs"));
