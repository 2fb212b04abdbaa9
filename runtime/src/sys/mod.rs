//! The only unsafe code: what neither std nor nix offers safely.
#![allow(unsafe_code)]

mod pages;

pub use pages::Pages;
