// The version switch. What there is to choose from stands in ../versions.js, beside the folders of all versions (docs/book/versions.py): so the
// pages of an old version know of versions that are newer than they are. A script, because a page that is opened as a file may not fetch data.
(function () {
  "use strict";
  const box = document.querySelector(".version-switch");
  const versions = window.ratchetVersions || [];
  const { version, page, root } = box.dataset;
  const select = box.querySelector("select");
  const address = (other) => `${root}../${other.version}/${other.pages.includes(page) ? page : "index"}.html`;

  if (versions.length > 0) {
    select.replaceChildren(...versions.map((each) => new Option(each.version, each.version)));
  }
  const show = () => { select.value = version; };
  show();
  window.addEventListener("pageshow", show); // the way back shows a page as it was left
  select.addEventListener("change", () => {
    location.href = address(versions.find((each) => each.version === select.value));
  });

  const newest = versions.find((each) => each.released);
  if (newest && newest.version !== version) {
    const note = document.createElement("p");
    const link = document.createElement("a");
    note.className = "version-note";
    note.append(version === "next" ? "This page is about the next release. " : `This page is about ${version}. `, link);
    link.href = address(newest);
    link.textContent = `Read it for ${newest.version}, the newest release.`;
    document.querySelector("article[role=main]").prepend(note);
  }
})();
