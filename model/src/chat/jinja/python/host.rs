//! The interpreter as filters, methods and functions see it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::chat::jinja::error::Error;
use crate::chat::jinja::limits::LONGEST;
use crate::chat::jinja::python::strftime::Date;
use crate::chat::jinja::python::value::{Dict, Loop, Value};

type Run<T> = Result<T, Error>;

/// The services of the interpreter. As a trait, it lets the tables of names stay below the
/// interpreter that uses them.
pub(crate) trait Host {
    /// Pays for `amount` steps.
    fn pay(&mut self, amount: usize) -> Run<()>;

    /// Returns `object.name`: an attribute of the Python object comes before an item.
    fn attribute(&mut self, object: &Value, name: &str) -> Run<Value>;

    /// Returns `object[index]`: an item comes before an attribute of the Python object.
    fn item(&mut self, object: &Value, index: &Value) -> Run<Value>;

    /// Returns an attribute of the variable `loop`. Some read items early, which runs the condition
    /// of the loop.
    fn loop_attribute(&mut self, state: &Rc<RefCell<Loop>>, name: &str) -> Run<Option<Value>>;

    /// Returns the date of the day, if it is known.
    fn date(&self) -> Option<Date>;

    /// Empties a namespace at the end of the run, because it may contain itself.
    fn keep(&mut self, namespace: &Rc<RefCell<Dict>>);

    /// Pays for a text before it is made.
    fn pay_text(&mut self, bytes: usize) -> Run<()> {
        if bytes > LONGEST {
            return Err(Error::failed(format!(
                "a text is longer than {} MiB",
                LONGEST >> 20
            )));
        }
        self.pay(bytes / 64)
    }

    /// Returns the text of a value, and pays for it.
    fn text(&mut self, value: &Value) -> Run<Arc<str>> {
        let text = value.text()?;
        self.pay_text(text.len())?;
        Ok(text)
    }
}
