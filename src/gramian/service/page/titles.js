// The names of items. Several items can share one title; then the id is shown beside it.

const known = new Map(); // id → { title, isShared }, from all models

/** Return the title of an item of a response, with the id if the title is shared; the id alone if there is no title. */
export function formatItem({ item, title, shares_title: isShared }) {
  if (!title) return String(item);
  return isShared ? `${title} · id\u00a0${item}` : title;
}

/** Remember the titles of the items in a response. A model without titles does not erase those of another model. */
export function rememberItems(items) {
  for (const { item, title, shares_title: isShared } of items) {
    const before = known.get(String(item));
    known.set(String(item), { title: title || before?.title, isShared: isShared || before?.isShared });
  }
}

export const isRemembered = (item) => known.has(String(item));

/** Return the name of an item by its id. */
export function nameOf(item) {
  const { title, isShared } = known.get(String(item)) ?? {};
  return formatItem({ item, title, shares_title: isShared });
}
