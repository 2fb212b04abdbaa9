//! What a manifest is held to.

use super::manifest::Manifest;

/// It is refused with one line, or says nothing that cannot be executed.
pub(crate) fn manifest(input: &[u8]) {
    match Manifest::parse(input) {
        Err(error) => assert!(!error.is_empty()),
        Ok(manifest) => {
            assert!(manifest.cwd.to_bytes().starts_with(b"/"));
            let is_variable = |variable: &std::ffi::CString| variable.to_bytes().iter().position(|&byte| byte == b'=');
            assert!(manifest.env.iter().all(|variable| is_variable(variable).is_some_and(|at| at > 0)));
            assert!(manifest.limits.iter().all(|limit| limit.soft <= limit.hard));
            if let Some(bounding) = manifest.privileges.bounding {
                assert!(bounding.contains(manifest.privileges.ambient));
            }
        }
    }
}
