#include "drawing/png.h"

#ifdef TUTTI_HAVE_RSVG
#include <librsvg/rsvg.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace tutti::drawing {

Status writePng(const std::string& svg, const std::string& path) {
  GError* error = nullptr;
  const auto failed = [&](const char* what) {
    const Status status = invalidUsage("{} {}: {}", what, path, error ? error->message : "no reason given");
    if (error) g_error_free(error);
    return status;
  };
  const std::unique_ptr<RsvgHandle, void (*)(gpointer)> handle(
      rsvg_handle_new_from_data(reinterpret_cast<const guint8*>(svg.data()), svg.size(), &error),
      g_object_unref);
  if (!handle) return failed("draw");
  double width = 0, height = 0;
  if (!rsvg_handle_get_intrinsic_size_in_pixels(handle.get(), &width, &height)) return failed("size of");
  // Twice as many pixels: sharp when printed or enlarged; but no more than a picture viewer bears.
  const double scale = std::min(2.0, 8000 / std::max(width, height));
  const std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width * scale),
                                 static_cast<int>(height * scale)),
      cairo_surface_destroy);
  const std::unique_ptr<cairo_t, void (*)(cairo_t*)> cairo(cairo_create(surface.get()), cairo_destroy);
  cairo_set_source_rgb(cairo.get(), 1, 1, 1);
  cairo_paint(cairo.get());
  const RsvgRectangle all{0, 0, width * scale, height * scale};
  if (!rsvg_handle_render_document(handle.get(), cairo.get(), &all, &error)) return failed("draw");
  errno = 0;  // cairo's own reason is "error while writing to output stream"
  const cairo_status_t written = cairo_surface_write_to_png(surface.get(), path.c_str());
  if (written == CAIRO_STATUS_SUCCESS) return Status::ok();
  return invalidUsage("write {}: {}", path,
                      errno != 0 ? std::strerror(errno) : cairo_status_to_string(written));
}

}  // namespace tutti::drawing

#else

namespace tutti::drawing {

Status writePng(const std::string&, const std::string& path) {
  return invalidUsage(
      "write {}: this program was built without librsvg. Install librsvg2-dev and build again, or write an "
      "SVG "
      "and convert it",
      path);
}

}  // namespace tutti::drawing
#endif
