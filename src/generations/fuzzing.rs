//! What files of a service are held to.

use super::record_file;

/// A record is refused, or says the same when it is written and read again.
pub(crate) fn record(input: &[u8]) {
    if let Ok(kept) = record_file::decode("web", input) {
        let text = record_file::encode("web", &kept.record, &kept.particulars);
        assert_eq!(record_file::decode("web", &text), Ok(kept));
    }
}

/// A service file is refused with one line that shows.
pub(crate) fn service_file(input: &[u8]) {
    if let Err(error) = super::Service::parse(input, "web".as_ref()) {
        assert!(!error.is_empty());
    }
}
